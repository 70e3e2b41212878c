// CoreDNS with the three plugins that the local cluster's Corefile names. The released program has some fifty more, with
// the libraries of three cloud providers, which take longer to compile than all that is used here.
package main

import (
	"github.com/coredns/coredns/coremain"

	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"
)

func main() {
	coremain.Run()
}

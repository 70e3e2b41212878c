# The local cluster's etcd as an image, for clusters that let the operator run one. Elsewhere etcd's own image serves.
FROM scratch
COPY etcd /usr/local/bin/etcd
ENV PATH=/usr/local/bin
USER 65532:65532

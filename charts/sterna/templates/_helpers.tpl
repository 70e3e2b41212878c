{{- define "sterna.name" -}}
{{- default .Release.Name .Values.name | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "sterna.labels" -}}
app.kubernetes.io/name: sterna
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/part-of: sterna
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- /* Users as a map with a list: a name, the Secret, and whether the chart makes that. */ -}}
{{- define "sterna.users" -}}
{{- $name := include "sterna.name" . -}}
users:
{{- range .Values.users }}
{{- if kindIs "string" . }}
- {name: {{ . | quote }}, secret: {{ printf "%s-user-%s" $name . | quote }}, isMade: true}
{{- if eq (toString $.Values.generateSecrets) "false" }}{{ fail (printf "generateSecrets is false, so that no password is made for user %s: give it a Secret of yours, users: [{name: %s, secret: NAME}]" . .) }}{{ end }}
{{- else }}
- {name: {{ .name | quote }}, secret: {{ .secret | quote }}, isMade: false}
{{- end }}
{{- end }}
{{- end -}}

{{- /* An image by its digest, or else by its tag: a dict with image (repository, tag, digest) and root. */ -}}
{{- define "sterna.reference" -}}
{{- if .image.digest -}}
{{- printf "%s@%s" .image.repository .image.digest -}}
{{- else -}}
{{- printf "%s:%s" .image.repository (default .root.Chart.AppVersion .image.tag) -}}
{{- end -}}
{{- end -}}

{{- /* Where pods may run, and with what images are fetched, as a pod has it: of the brokers, of the test and of the guard. What
spec.pod says comes before the values of the chart. */ -}}
{{- define "sterna.placement" -}}
{{- $pod := default dict .Values.spec.pod -}}
{{- $own := dict -}}
{{- with .Values.imagePullSecrets }}
{{- $names := list }}
{{- range . }}{{ $names = append $names (dict "name" .) }}{{ end }}
{{- $_ := set $own "imagePullSecrets" $names }}
{{- end }}
{{- with .Values.nodeSelector }}{{ $_ := set $own "nodeSelector" . }}{{ end }}
{{- with .Values.tolerations }}{{ $_ := set $own "tolerations" . }}{{ end }}
{{- $given := pick $pod "imagePullSecrets" "nodeSelector" "tolerations" "priorityClassName" -}}
{{- with mergeOverwrite $own (deepCopy $given) }}{{ toYaml . }}{{ end }}
{{- end -}}

{{- define "sterna.spec" -}}
{{- with include "sterna.placement" . | trim }}
pod: {{- . | nindent 2 }}
{{- end }}
{{- with .Values.brokers }}
brokers: {{ . }}
{{- end }}
deletionPolicy: {{ .Values.deletionPolicy }}
insecure: {{ .Values.insecure }}
storage: {{- toYaml .Values.storage | nindent 2 }}
authentication: {{- toYaml .Values.authentication | nindent 2 }}
{{- if and .Values.etcd.endpoints (hasKey .Values.etcd "managed") }}
etcd: {{- toYaml (omit .Values.etcd "managed") | nindent 2 }}
{{- else }}
etcd: {{- toYaml .Values.etcd | nindent 2 }}
{{- end }}
{{- if eq .Values.tls.mode "certManager" }}
tls:
  certManager:
    issuerRef: {{- toYaml .Values.tls.issuerRef | nindent 6 }}
    {{- with .Values.tls.names }}
    dnsNames: {{- toYaml . | nindent 6 }}
    {{- end }}
{{- else if eq .Values.tls.mode "generate" }}
tls:
  generated:
    dnsNames: {{- toYaml .Values.tls.names | nindent 6 }}
{{- else if eq .Values.tls.mode "secret" }}
tls:
  secretName: {{ required "tls.secretName is needed with tls.mode secret" .Values.tls.secretName }}
{{- end }}
{{- with .Values.listeners }}
listeners: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "sterna.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "sterna.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{- /* One object of a kind that belongs to the cluster: a dict with kind, one (name and spec) and root. */ -}}
{{- define "sterna.object" -}}
apiVersion: sterna.dev/v1alpha1
kind: {{ .kind }}
metadata:
  name: {{ .one.name }}
  namespace: {{ .root.Release.Namespace }}
  labels: {{- include "sterna.labels" .root | nindent 4 }}
spec: {{- merge (dict "clusterRef" (dict "name" (include "sterna.name" .root))) (default dict .one.spec) | toYaml | nindent 2 }}
{{- end -}}

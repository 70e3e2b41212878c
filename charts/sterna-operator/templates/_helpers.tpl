{{- define "sterna-operator.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "sterna-operator.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- else if contains (include "sterna-operator.name" .) .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "sterna-operator.name" .) | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "sterna-operator.selector" -}}
app.kubernetes.io/name: {{ include "sterna-operator.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- /* The same for the operator, which lets its own pods through its network policies. */ -}}
{{- define "sterna-operator.podLabels" -}}
{{- $pairs := list -}}
{{- range $name, $value := include "sterna-operator.selector" . | fromYaml -}}
{{- $pairs = append $pairs (printf "%s=%s" $name $value) -}}
{{- end -}}
{{- join "," $pairs -}}
{{- end -}}

{{- define "sterna-operator.labels" -}}
{{ include "sterna-operator.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: sterna
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- /* Of what `helm test` makes: none by which the operator's own pods are chosen. */ -}}
{{- define "sterna-operator.testLabels" -}}
app.kubernetes.io/name: {{ include "sterna-operator.name" . }}-test
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- /* Those of what Prometheus selects, with the labels by which it does. */ -}}
{{- define "sterna-operator.monitorLabels" -}}
{{ include "sterna-operator.labels" . }}
{{- with .Values.metrics.labels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "sterna-operator.account" -}}
{{- default (include "sterna-operator.fullname" .) .Values.serviceAccount.name -}}
{{- end -}}

{{- /* An image by its digest, or else by its tag: a dict with image (repository, tag, digest) and root. */ -}}
{{- define "sterna-operator.reference" -}}
{{- if .image.digest -}}
{{- printf "%s@%s" .image.repository .image.digest -}}
{{- else -}}
{{- printf "%s:%s" .image.repository (default .root.Chart.AppVersion .image.tag) -}}
{{- end -}}
{{- end -}}

{{- define "sterna-operator.image" -}}
{{- include "sterna-operator.reference" (dict "image" .Values.image "root" .) -}}
{{- end -}}

{{- define "sterna-operator.brokerImage" -}}
{{- include "sterna-operator.reference" (dict "image" .Values.brokerImage "root" .) -}}
{{- end -}}

{{- define "sterna-operator.auditImage" -}}
{{- include "sterna-operator.reference" (dict "image" .Values.auditImage "root" .) -}}
{{- end -}}

{{- /* Where pods may run, and with what their images are fetched: the same for the operator, its hook and its test. */ -}}
{{- define "sterna-operator.placement" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end -}}

{{- /* The rules of files/rules.yaml without their reasons, which the API server does not take. */ -}}
{{- define "sterna-operator.rules" -}}
{{- range .Files.Get "files/rules.yaml" | fromYamlArray }}
- {{ omit . "reason" | toYaml | nindent 2 | trim }}
{{- end }}
{{- end -}}

{{- define "sterna-operator.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "sterna-operator.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

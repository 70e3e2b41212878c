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

{{- define "sterna-operator.account" -}}
{{- default (include "sterna-operator.fullname" .) .Values.serviceAccount.name -}}
{{- end -}}

{{- define "sterna-operator.image" -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}

{{- define "sterna-operator.brokerImage" -}}
{{- printf "%s:%s" .Values.brokerImage.repository (default .Chart.AppVersion .Values.brokerImage.tag) -}}
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

{{- define "llm-canary.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "llm-canary.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" }}
{{- else }}
{{- $name := include "llm-canary.name" . }}
{{- if contains $name .Release.Name }}
{{- .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" }}
{{- end }}
{{- end }}
{{- end }}

{{/* What selects pods: must not change in an upgrade. Call with (dict "root" $ "component" "prober"). */}}
{{- define "llm-canary.selector" -}}
app.kubernetes.io/name: {{ include "llm-canary.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "llm-canary.labels" -}}
{{- with .root.Values.commonLabels }}
{{- toYaml . }}
{{ end -}}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
app.kubernetes.io/name: {{ include "llm-canary.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
{{- with .component }}
app.kubernetes.io/component: {{ . }}
{{- end }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
{{- end }}

{{- define "llm-canary.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}
{{- end }}

{{- define "llm-canary.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "llm-canary.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "llm-canary.podSecurityContext" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "llm-canary.containerSecurityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{/* Health does not depend on the targets: otherwise the kubelet would kill the monitor in the outage that it reports.
     With basic auth the kubelet has no password, so that it looks at the port alone. */}}
{{- define "llm-canary.healthChecks" -}}
livenessProbe:
  {{- if .Values.web.basicAuth }}
  tcpSocket:
    port: metrics
  {{- else }}
  httpGet:
    path: /-/healthy
    port: metrics
    {{- if .Values.web.tls }}
    scheme: HTTPS
    {{- end }}
  {{- end }}
  periodSeconds: 15
  timeoutSeconds: 5
  failureThreshold: 4
readinessProbe:
  {{- if .Values.web.basicAuth }}
  tcpSocket:
    port: metrics
  {{- else }}
  httpGet:
    path: /-/ready
    port: metrics
    {{- if .Values.web.tls }}
    scheme: HTTPS
    {{- end }}
  {{- end }}
  periodSeconds: 5
  timeoutSeconds: 5
{{- end }}

{{- define "llm-canary.webArgs" -}}
- --web.listen-address=:9877
{{- if .Values.web.existingSecret }}
- --web.config.file=/etc/llm_canary_exporter/web/web.yml
{{- end }}
{{- if .Values.web.enableLifecycle }}
- --web.enable-lifecycle
{{- end }}
{{- end }}

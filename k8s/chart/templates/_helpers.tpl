{{- /* The content of each ConfigMap. */ -}}
{{- define "firmq.data.settings" -}}
{{- range $name, $value := .Values.settings }}
{{ $name }}: {{ kindIs "string" $value | ternary $value (toJson $value) | quote }}
{{- end }}
{{- end -}}

{{- define "firmq.data.redis" -}}
redis.conf: |
{{ .Files.Get "files/redis/redis.conf" | indent 2 }}
{{- with .Values.redis.config }}
{{ . | trim | indent 2 }}
{{ end }}
{{- end -}}

{{- define "firmq.data.prometheus" -}}
{{- range $path, $_ := .Files.Glob "files/prometheus/*" }}
{{ base $path }}: |
{{ $.Files.Get $path | indent 2 }}
{{- end }}
{{- end -}}

{{- define "firmq.data.jaeger" -}}
{{- range $path, $_ := .Files.Glob "files/jaeger/*" }}
{{ base $path }}: |
{{ $.Files.Get $path | indent 2 }}
{{- end }}
{{- end -}}

{{- /* The name of a ConfigMap changes with its content, so that a change restarts the pods that use it. */ -}}
{{- define "firmq.name" -}}
{{- $root := index . 0 -}}
{{- $name := index . 1 -}}
{{ $name }}-{{ include (printf "firmq.data.%s" $name) $root | sha256sum | trunc 10 }}
{{- end -}}

{{- /* Settings of one part. */ -}}
{{- define "firmq.env" -}}
{{- $root := index . 0 -}}
{{- $part := index . 1 -}}
{{- range $name, $value := (index $root.Values $part).env }}
- name: {{ $name }}
  value: {{ kindIs "string" $value | ternary $value (toJson $value) | quote }}
{{- end }}
{{- if and (eq $part "gateway") $root.Values.prometheus.enabled }}
- name: PROMETHEUS_URL
  value: http://prometheus:9090
{{- end }}
{{- end -}}

{{- /* Redis: the chart's own, or the address in the secret. */ -}}
{{- define "firmq.redis" -}}
{{- if .Values.redis.enabled }}
- name: REDIS_PASSWORD
  valueFrom:
    secretKeyRef:
      key: redis-password
      name: {{ .Values.secret }}
{{- else }}
- name: REDIS_URL
  valueFrom:
    secretKeyRef:
      key: redis-url
      name: {{ .Values.secret }}
{{- if .Values.redis.external.sentinel }}
- name: REDIS_PASSWORD
  valueFrom:
    secretKeyRef:
      key: redis-password
      name: {{ .Values.secret }}
- name: REDIS_SENTINEL_PASSWORD
  valueFrom:
    secretKeyRef:
      key: sentinel-password
      name: {{ .Values.secret }}
      optional: true
{{- end }}
{{- end }}
{{- end -}}

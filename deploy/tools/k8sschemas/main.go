// Command k8sschemas writes JSON schemas of the Kubernetes objects that our manifests use into a folder, in the layout
// that kubeconform expects, so that manifests are checked without a cluster and without a download.
//
// Fields and their types come from the Go types of k8s.io/api and of the Prometheus operator, so that the versions in
// go.mod say what is checked against. Which fields are required comes from the API description that kustomize carries;
// for the operator's types, from the absence of omitempty. No other field is allowed.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	rbac "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/kustomize/kyaml/openapi"
)

// object is one kind that a manifest may hold.
type object struct {
	apiVersion string
	value      any
}

func objects() []object {
	return []object{
		{"v1", core.ConfigMap{}},
		{"v1", core.Namespace{}},
		{"v1", core.PersistentVolumeClaim{}},
		{"v1", core.Pod{}},
		{"v1", core.Secret{}},
		{"v1", core.Service{}},
		{"v1", core.ServiceAccount{}},
		{"apps/v1", apps.DaemonSet{}},
		{"apps/v1", apps.Deployment{}},
		{"networking.k8s.io/v1", networking.NetworkPolicy{}},
		{"rbac.authorization.k8s.io/v1", rbac.Role{}},
		{"rbac.authorization.k8s.io/v1", rbac.RoleBinding{}},
		{"monitoring.coreos.com/v1", monitoring.PodMonitor{}},
		{"monitoring.coreos.com/v1", monitoring.PrometheusRule{}},
		{"monitoring.coreos.com/v1", monitoring.ServiceMonitor{}},
	}
}

type schema = map[string]any

// builder makes one document; a type that occurs twice is defined once.
type builder struct {
	required map[string][]string // from the API description, by the name that it gives to the type
	defs     schema
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: k8sschemas FOLDER")
		os.Exit(2)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "k8sschemas:", err)
		os.Exit(1)
	}
}

func write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	required := requiredFields()
	for _, o := range objects() {
		t := reflect.TypeOf(o.value)
		b := &builder{required: required, defs: schema{}}
		root := b.object(t)
		props := root["properties"].(schema)
		props["apiVersion"] = schema{"const": o.apiVersion}
		props["kind"] = schema{"const": t.Name()}
		root["required"] = append([]string{"apiVersion", "kind", "metadata"}, strs(root["required"])...)
		root["definitions"] = b.defs
		data, err := json.Marshal(root)
		if err != nil {
			return fmt.Errorf("%s: %w", t, err)
		}
		if err := os.WriteFile(filepath.Join(dir, fileName(o.apiVersion, t.Name())), data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// fileName is what the template {{.ResourceKind}}{{.KindSuffix}}.json of kubeconform gives.
func fileName(apiVersion, kind string) string {
	group, version, ok := strings.Cut(apiVersion, "/")
	if !ok {
		return strings.ToLower(kind + "-" + apiVersion + ".json")
	}
	group, _, _ = strings.Cut(group, ".")
	return strings.ToLower(kind + "-" + group + "-" + version + ".json")
}

func strs(v any) []string {
	s, _ := v.([]string)
	return s
}

// requiredFields reads the API description: type name -> fields that must be there.
func requiredFields() map[string][]string {
	out := map[string][]string{}
	for name, def := range openapi.Schema().Definitions {
		out[name] = def.Required
	}
	return out
}

// describedAs is the name that the API description gives to a Go type: k8s.io/api/apps/v1.Deployment is
// io.k8s.api.apps.v1.Deployment.
func describedAs(t reflect.Type) string {
	path := strings.Replace(t.PkgPath(), "k8s.io/", "io.k8s.", 1)
	return strings.ReplaceAll(path, "/", ".") + "." + t.Name()
}

func (b *builder) object(t reflect.Type) schema {
	props := schema{}
	var required []string
	known, described := b.required[describedAs(t)]
	b.fields(t, func(name string, f reflect.StructField, omitempty bool) {
		props[name] = b.of(f.Type)
		if described {
			return
		}
		if !omitempty && strings.HasPrefix(t.PkgPath(), "github.com/prometheus-operator/") && f.Type.Kind() != reflect.Struct {
			required = append(required, name)
		}
	})
	for _, name := range known {
		if _, ok := props[name]; ok {
			required = append(required, name)
		}
	}
	out := schema{"type": "object", "properties": props, "additionalProperties": false}
	if len(required) > 0 {
		out["required"] = required
	}
	return out
}

// fields calls fn for every JSON field, those of embedded structs included.
func (b *builder) fields(t reflect.Type, fn func(string, reflect.StructField, bool)) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-" || !f.IsExported():
		case name == "" && f.Anonymous:
			embedded := f.Type
			if embedded.Kind() == reflect.Pointer {
				embedded = embedded.Elem()
			}
			b.fields(embedded, fn)
		case name != "":
			fn(name, f, strings.Contains(options, "omit"))
		}
	}
}

func (b *builder) of(t reflect.Type) schema {
	switch t {
	case reflect.TypeFor[meta.Time](), reflect.TypeFor[meta.MicroTime]():
		return schema{"type": []string{"string", "null"}}
	case reflect.TypeFor[meta.Duration]():
		return schema{"type": "string"}
	case reflect.TypeFor[meta.FieldsV1](), reflect.TypeFor[runtime.RawExtension]():
		return schema{"type": "object"}
	case reflect.TypeFor[intstr.IntOrString]():
		return schema{"type": []string{"integer", "string"}}
	case reflect.TypeFor[resource.Quantity]():
		return schema{"type": []string{"string", "number"}, "pattern": `^[+-]?[0-9.]+([eE][+-]?[0-9]+|[numkMGTPE]|[KMGTPE]i)?$`}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return b.of(t.Elem())
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return schema{"type": "string"}
		}
		return schema{"type": "array", "items": b.of(t.Elem())}
	case reflect.Map:
		return schema{"type": "object", "additionalProperties": b.of(t.Elem())}
	case reflect.Struct:
		name := strings.ReplaceAll(t.PkgPath(), "/", ".") + "." + t.Name()
		if _, ok := b.defs[name]; !ok {
			b.defs[name] = nil // a type may hold itself
			b.defs[name] = b.object(t)
		}
		return schema{"$ref": "#/definitions/" + name}
	case reflect.String:
		return schema{"type": "string"}
	case reflect.Bool:
		return schema{"type": "boolean"}
	case reflect.Int, reflect.Int32, reflect.Int64, reflect.Uint, reflect.Uint32, reflect.Uint64:
		return schema{"type": "integer"}
	case reflect.Float32, reflect.Float64:
		return schema{"type": "number"}
	default:
		return schema{}
	}
}

package engine

import (
	"strings"

	"github.com/valyala/fastjson"
)

// apiError is what a server says about a failure, in whatever form it says it.
type apiError struct {
	message, kind, code, param string
}

// readError reads an error object: OpenAI's nested form, vLLM's old flat one, a plain string (Ollama, TGI, vLLM's
// key guard), FastAPI's detail, Databricks' error_code, Triton's and Anthropic's.
func readError(v *fastjson.Value) apiError {
	if v == nil || v.Type() != fastjson.TypeObject {
		return apiError{}
	}
	e := v.Get("error")
	switch {
	case e != nil && e.Type() == fastjson.TypeObject:
		inner := flatError(e)
		if inner.message == "" {
			inner.message = flatError(v).message
		}
		return inner
	case e != nil && e.Type() == fastjson.TypeString:
		flat := flatError(v)
		return apiError{message: orElse(string(e.GetStringBytes()), flat.message), kind: orElse(string(str(v, "error_type")), flat.kind), code: flat.code}
	}
	if list := v.GetArray("errors"); len(list) > 0 && list[0].Type() == fastjson.TypeObject {
		return flatError(list[0])
	}
	return flatError(v)
}

func flatError(v *fastjson.Value) apiError {
	e := apiError{
		message: text(v.Get("message")),
		kind:    text(v.Get("type")),
		code:    text(v.Get("code")),
		param:   text(v.Get("param")),
	}
	if e.message == "" {
		e.message, e.param = detail(v.Get("detail"), e.param)
	}
	if e.message == "" {
		e.message = text(v.Get("error_msg"))
	}
	if e.code == "" {
		e.code = text(v.Get("error_code"))
	}
	return e
}

// detail reads FastAPI's and pydantic's detail. The input that they repeat is left out: it may be the prompt.
func detail(v *fastjson.Value, param string) (string, string) {
	if v == nil {
		return "", param
	}
	if v.Type() != fastjson.TypeArray {
		return text(v), param
	}
	var parts []string
	for _, item := range v.GetArray() {
		var loc []string
		for _, l := range item.GetArray("loc") {
			if s := text(l); s != "" && s != "body" {
				loc = append(loc, s)
			}
		}
		name := strings.Join(loc, ".")
		if param == "" {
			param = name
		}
		parts = append(parts, strings.TrimSpace(name+": "+string(str(item, "msg"))+" ("+string(str(item, "type"))+")"))
	}
	return strings.Join(parts, "; "), param
}

// text returns a string's value or a number's digits.
func text(v *fastjson.Value) string {
	if v == nil {
		return ""
	}
	switch v.Type() {
	case fastjson.TypeString:
		return string(v.GetStringBytes())
	case fastjson.TypeNumber:
		return string(v.MarshalTo(nil))
	}
	return ""
}

// text joins what the server said.
func (e apiError) text() string {
	var parts []string
	for _, s := range []string{e.kind, e.code} {
		if s != "" && s != "error" && !strings.Contains(e.message, s) {
			parts = append(parts, s)
		}
	}
	head := strings.Join(parts, " ")
	switch {
	case head == "":
		return e.message
	case e.message == "":
		return head
	}
	return head + ": " + e.message
}

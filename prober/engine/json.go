package engine

import (
	"math"

	"github.com/valyala/fastjson"
)

// Helpers to read JSON of unknown shape: whatever is not of the expected type is as if it were not there.

// str returns the string at that path, or nil. It is valid until the parser is used again.
func str(v *fastjson.Value, keys ...string) []byte {
	return v.GetStringBytes(keys...)
}

// num returns the number at that path, or Unknown: for counts and durations, of which none is negative.
func num(v *fastjson.Value, keys ...string) float64 {
	n := v.Get(keys...)
	if n == nil || n.Type() != fastjson.TypeNumber {
		return Unknown
	}
	f, err := n.Float64()
	if err != nil || math.IsNaN(f) || math.IsInf(f, 0) || f < 0 {
		return Unknown
	}
	return f
}

// maxCount bounds a count that is believed.
const maxCount = 1 << 31

// count returns the whole number at that path, or Unknown.
func count(v *fastjson.Value, keys ...string) int {
	f := num(v, keys...)
	if f < 0 || f > maxCount {
		return Unknown
	}
	return int(f)
}

// seconds returns the number at that path, of which a second has so many, or Unknown.
func seconds(v *fastjson.Value, perSecond float64, keys ...string) float64 {
	f := num(v, keys...)
	if f < 0 {
		return Unknown
	}
	return f / perSecond
}

// present reports whether there is something other than null, false and an empty string.
func present(v *fastjson.Value) bool {
	if v == nil {
		return false
	}
	switch v.Type() {
	case fastjson.TypeNull, fastjson.TypeFalse:
		return false
	case fastjson.TypeString:
		return len(v.GetStringBytes()) > 0
	}
	return true
}

// sum adds counts, of which those that are unknown count nothing; it is Unknown if all are.
func sum(counts ...int) int {
	total := Unknown
	for _, n := range counts {
		if n >= 0 {
			total = max(total, 0) + n
		}
	}
	return total
}

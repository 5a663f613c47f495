package result

// Reason says why a request or a probe failed. The list is closed: it is a label value.
type Reason string

// The reasons of a failure.
const (
	ReasonNone              Reason = ""
	ReasonDNS               Reason = "dns"
	ReasonConnect           Reason = "connect"
	ReasonTLS               Reason = "tls"
	ReasonConnectionReset   Reason = "connection_reset"
	ReasonTimeoutConnect    Reason = "timeout_connect"
	ReasonTimeoutFirstToken Reason = "timeout_first_token"
	ReasonTimeoutStall      Reason = "timeout_stall"
	ReasonTimeoutTotal      Reason = "timeout_total"
	ReasonHTTP4xx           Reason = "http_4xx"
	ReasonHTTP401           Reason = "http_401" // 401 and 403: the credentials
	ReasonHTTP404           Reason = "http_404" // the path
	ReasonModelNotFound     Reason = "model_not_found"
	ReasonHTTP429           Reason = "http_429"
	ReasonHTTP5xx           Reason = "http_5xx"
	ReasonHTTP503           Reason = "http_503"
	ReasonNotAStream        Reason = "not_a_stream"
	ReasonMalformedStream   Reason = "malformed_stream"
	ReasonStreamError       Reason = "stream_error" // an error event in a 200 stream, finish reason error or abort
	ReasonTruncated         Reason = "truncated"    // ended without a finish reason
	ReasonEmptyOutput       Reason = "empty_output"
	ReasonResponseTooLarge  Reason = "response_too_large"
	ReasonWrongAnswer       Reason = "wrong_answer"
	ReasonUnsupported       Reason = "unsupported" // required by the config, but the target cannot do it
	ReasonCanceled          Reason = "canceled"
	ReasonInternal          Reason = "internal"
)

// Reasons returns every reason of a failure.
func Reasons() []Reason {
	return []Reason{
		ReasonDNS, ReasonConnect, ReasonTLS, ReasonConnectionReset,
		ReasonTimeoutConnect, ReasonTimeoutFirstToken, ReasonTimeoutStall, ReasonTimeoutTotal,
		ReasonHTTP4xx, ReasonHTTP401, ReasonHTTP404, ReasonModelNotFound, ReasonHTTP429, ReasonHTTP5xx, ReasonHTTP503,
		ReasonNotAStream, ReasonMalformedStream, ReasonStreamError, ReasonTruncated, ReasonEmptyOutput,
		ReasonResponseTooLarge, ReasonWrongAnswer, ReasonUnsupported, ReasonCanceled, ReasonInternal,
	}
}

// Anomaly is something odd that did not fail the request. The list is closed: it is a label value.
type Anomaly string

// The anomalies.
const (
	AnomalyMissingDone        Anomaly = "missing_done"         // finish reason, but no [DONE]
	AnomalyUnterminated       Anomaly = "unterminated"         // the last event had no blank line
	AnomalyDuplicateFinish    Anomaly = "duplicate_finish"     // more than one finish reason
	AnomalyBuffered           Anomaly = "buffered"             // everything came at once: something buffers the stream
	AnomalyCompressed         Anomaly = "compressed"           // Content-Encoding although identity was asked for
	AnomalyNonstandardFraming Anomaly = "nonstandard_framing"  // readable, but not as the format says
	AnomalyUsageMissing       Anomaly = "usage_missing"        // usage was asked for and did not come
	AnomalyUsageInconsistent  Anomaly = "usage_inconsistent"   // usage contradicts the chunks
	AnomalyDirtyCold          Anomaly = "dirty_cold"           // a request that must miss the prefix cache reported hits
	AnomalyModelMismatch      Anomaly = "model_mismatch"       // the answer names another model than was asked for
	AnomalyInvalidUTF8        Anomaly = "invalid_utf8"         // the text is not UTF-8 or holds U+FFFD
	AnomalyFieldDropped       Anomaly = "field_dropped"        // an optional field was refused and left out
	AnomalyRetried            Anomaly = "retried"              // sent again on a fresh connection: a kept one had been closed
	AnomalyNoVisibleOutput    Anomaly = "no_visible_output"    // tokens were counted, none of them as text
	AnomalyOutputAfterFinish  Anomaly = "output_after_finish"  // output came after the finish reason
	AnomalyLimitIgnored       Anomaly = "output_limit_ignored" // more output than max_tokens allowed; cut by the client if it went on
)

// Anomalies returns every anomaly.
func Anomalies() []Anomaly {
	return []Anomaly{
		AnomalyMissingDone, AnomalyUnterminated, AnomalyDuplicateFinish, AnomalyBuffered, AnomalyCompressed,
		AnomalyNonstandardFraming, AnomalyUsageMissing, AnomalyUsageInconsistent, AnomalyDirtyCold,
		AnomalyModelMismatch, AnomalyInvalidUTF8, AnomalyFieldDropped, AnomalyRetried, AnomalyNoVisibleOutput,
		AnomalyOutputAfterFinish, AnomalyLimitIgnored,
	}
}

package desc

import (
	"errors"
	"strings"
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed"
)

func TestMalformedJSONIsNotParsedAsProtobuf(t *testing.T) {
	for _, data := range []string{"\ufeff{\"version\": 1}", "// a program\n{}", "[]", "null", "hello"} {
		_, err := Parse([]byte(data))
		var e *pyfeed.Error
		if !errors.As(err, &e) || !strings.Contains(err.Error(), "or JSON, which begins with a brace") {
			t.Errorf("%q: found %v", data, err)
		}
	}
}

func TestATruncatedNumberIsFollowedByTheEnd(t *testing.T) {
	_, err := Parse([]byte{8})
	if err == nil || !strings.Contains(err.Error(), "expected a varint, found the end") || strings.Contains(err.Error(), "JSON") {
		t.Errorf("found %v", err)
	}
}

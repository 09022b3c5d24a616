package columns

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestListsThatAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		`[]`:               "columns: expected at least 1, found none",
		`"x"`:              `columns: expected a list of names or objects, found "x"`,
		`[1.5]`:            "columns: expected names or numbers of columns, found 1.5",
		`[{"shape": [3]}]`: `columns: unknown field "shape"; there are name, columns, dtype, dims, default`,
	} {
		var list List
		if err := json.Unmarshal([]byte(text), &list); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: expected the error %q, found %v", text, want, err)
		}
	}
	list := List{}
	if err := json.Unmarshal([]byte(`null`), &list); err != nil || len(list) != 0 {
		t.Errorf("null: expected no columns, found %v, %v", list, err)
	}
}

package ops

import (
	"context"
	"encoding/json"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers"
)

// Attributes are attributes of an operator by their names. operators.json lists them, and their defaults.
type Attributes map[string]any

// Make runs an operator for a program in Go: it makes a reader of the readers in, whose references it takes over, also
// if it fails. Files that can block, such as named pipes, are waited for until ctx is done. The caller drops the reader,
// which drops the readers in. An operator that reads a queue finds the queue's variable in the global scope.
func Make(ctx context.Context, name string, attributes Attributes, in ...*readers.ReaderHolder) (*readers.ReaderHolder, error) {
	text, err := json.Marshal(attributes)
	if err != nil {
		err = pyfeed.Errorf(pyfeed.Invalid, "%s: attributes: %v", name, err)
	} else if attributes == nil {
		text = nil
	}
	if err == nil {
		err = Check(name, len(in), text)
	}
	if err != nil {
		for _, h := range in {
			h.Drop()
		}
		return nil, err
	}
	r, err := operators.byName[name].make(ctx, pyfeed.GlobalScope(), in, text)
	if err != nil {
		return nil, err
	}
	return readers.NewHolder(r), nil
}

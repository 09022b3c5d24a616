package program

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/pyfeed/pyfeed/program/desc"
	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/record"
)

// A searching file never ends the search for its slots.
type searching struct {
	record.Records
	stop interface{ Poll() error }
}

var searches = make(chan struct{}, 8)

func (s searching) Close() { searches <- struct{}{} }
func (s searching) Describe() ([]pyfeed.Slot, []string, error) {
	searches <- struct{}{}
	for {
		if err := s.stop.Poll(); err != nil {
			return nil, nil, err
		}
	}
}

func init() {
	record.MustRegister(record.Format{Tag: "searching", Suffixes: []string{".searching"}, Open: func(_ string, c *record.Config) (record.Records, error) {
		return searching{stop: c.Storage.Interrupt}, nil
	}})
}

// An operator that opens files does not block the thread of its run. The opening ends with the run.
func TestAnOpeningEndsWithItsRun(t *testing.T) {
	name := filepath.Join(t.TempDir(), "a.searching")
	if err := os.WriteFile(name, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	d, err := desc.Parse(fmt.Appendf(nil, `{"version": 1, "blocks": [{"parent": -1, "variables": [{"name": "r", "kind": "reader", "persistable": true}],
		"ops": [{"type": "open_files", "outputs": ["r"], "attributes": {"filenames": [%q]}}]}]}`, name))
	if err != nil {
		t.Fatal(err)
	}
	p, err := From(d)
	if err != nil {
		t.Fatal(err)
	}
	e, err := NewExecutor(pyfeed.CPUPlace())
	if err != nil {
		t.Fatal(err)
	}
	defer e.Drop()
	scope := pyfeed.NewScope(nil)
	defer scope.Drop()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		_, err := e.Run(ctx, p, scope, nil, nil, nil)
		done <- err
	}()
	<-searches // the run's thread searches
	<-searches // the run's thread gives up
	<-searches // the goroutine searches
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("expected context.Canceled, found %v", err)
	}
	<-searches // the goroutine gives up
}

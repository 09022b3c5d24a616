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

// A searching file has no end to what it looks through before it says what its instances look like.
type searching struct {
	record.Records
	stop interface{ Look() error }
}

var searches = make(chan struct{}, 8)

func (s searching) Close() { searches <- struct{}{} }
func (s searching) Describe() ([]pyfeed.Slot, []string, error) {
	searches <- struct{}{}
	for {
		if err := s.stop.Look(); err != nil {
			return nil, nil, err
		}
	}
}

func init() {
	record.MustRegister(record.Format{Tag: "searching", Suffixes: []string{".searching"}, Open: func(_ string, c *record.Config) (record.Records, error) {
		return searching{stop: c.Storage.Interrupt}, nil
	}})
}

// The operator does not keep the thread of its run, and what it has begun ends with the run.
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
	<-searches // by the run's thread
	<-searches // which has given up
	<-searches // by the goroutine
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("found %v", err)
	}
	<-searches // which has ended
}

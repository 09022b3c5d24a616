// Package files has the readers of files: it finds files by name, opens them, and reads many at a time.
package files

import (
	"encoding/json"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// Options has the files to read and how to read them: the attributes of open_files and create_file_reader.
type Options struct {
	Filenames      []string                `json:"filenames" required:"true" doc:"paths, globs or directories; a format's tag and a colon come before a name whose suffix does not tell the format"`
	Format         string                  `json:"format" doc:"a tag for all"`
	Slots          []record.SlotAttributes `json:"slots" absent:"what the files say" doc:"see below"`
	NumThreads     int                     `json:"num_threads"`
	Ordered        bool                    `json:"ordered" doc:"one order whatever num_threads"`
	Interleave     int                     `json:"interleave" doc:"files read in turn when ordered"`
	ShuffleFiles   *uint64                 `json:"shuffle_files" absent:"as they are listed" doc:"a seed, by which the files come in another order in each pass"`
	ShuffleRecords *uint64                 `json:"shuffle_records" absent:"records are not permuted" doc:"a seed, by which all records of all files come in another order in each pass; it implies index"`
	Index          bool                    `json:"index" doc:"each file gets an index, so that its records can be read by their numbers"`
	IndexDir       string                  `json:"index_dir" absent:"beside the files" doc:"where the indexes are; it implies index"`
	VirtualShards  int                     `json:"virtual_shards" absent:"records are not divided" doc:"how many equal parts the records of all files are divided into, the same for all processes of a job; it implies index"`
	Rank           int                     `json:"rank" doc:"the process among world, with virtual_shards: it reads the parts rank, rank+world, …, one record of each in turn"`
	World          int                     `json:"world" doc:"the number of processes, which divides virtual_shards"`
	Even           string                  `json:"even" doc:"drop, repeat or pad: how all parts get the same number of tuples if virtual_shards does not divide the number of records"`
	OnCorrupt      string                  `json:"on_corrupt" doc:"or \"skip\""`
	VerifyFirst    bool                    `json:"verify_first" doc:"each file is read twice, the first time to verify all of it"`
	Storage        storage.Options         `json:"storage"`
	Options        json.RawMessage         `json:"options" absent:"none" doc:"the format's, see docs/formats.md"`
}

// Check returns an error if the options are not valid, as far as that is known without a search for the files.
func (o *Options) Check() error {
	switch {
	case len(o.Filenames) == 0:
		return pyfeed.Errorf(pyfeed.Invalid, "filenames: expected at least 1, found 0")
	case o.NumThreads < 1 || o.NumThreads > 1024:
		return pyfeed.Errorf(pyfeed.Invalid, "num_threads: expected 1 to 1024, found %d", o.NumThreads)
	case o.Interleave < 1 || o.Interleave > 4096:
		return pyfeed.Errorf(pyfeed.Invalid, "interleave: expected 1 to 4096 files, found %d", o.Interleave)
	case o.OnCorrupt != "" && o.OnCorrupt != "raise" && o.OnCorrupt != "skip":
		return pyfeed.Errorf(pyfeed.Invalid, "on_corrupt: expected raise or skip, found %q", o.OnCorrupt)
	}
	if err := o.checkIndex(); err != nil {
		return err
	}
	if _, err := namesOf(o.Filenames); err != nil {
		return err
	}
	if err := o.Storage.Check(); err != nil {
		return err
	}
	return record.CheckSlots(o.Slots)
}

// indexed reports whether the files need an index.
func (o *Options) indexed() bool {
	return o.Index || o.IndexDir != "" || o.ShuffleRecords != nil || o.VirtualShards > 0
}

// shards returns the virtual shards of the options.
func (o *Options) shards() readers.VirtualShards {
	return readers.VirtualShards{Total: o.VirtualShards, Rank: o.Rank, World: o.World, Even: readers.Even(o.Even)}
}

// checkIndex returns an error if the options do not fit to an index.
func (o *Options) checkIndex() error {
	switch {
	case o.ShuffleRecords == nil && o.VirtualShards == 0:
		return o.shards().Check("open_files")
	case o.ShuffleRecords != nil && o.ShuffleFiles != nil:
		return pyfeed.Errorf(pyfeed.Invalid, "shuffle_files: expected none with shuffle_records, which permutes the records of all files, found %d", *o.ShuffleFiles)
	case o.VerifyFirst:
		return pyfeed.Errorf(pyfeed.Invalid, "verify_first: expected false with shuffle_records and virtual_shards, found true: no process reads whole files")
	}
	return o.shards().Check("open_files")
}

package ops

import (
	"github.com/pyfeed/pyfeed/readers"
	"github.com/pyfeed/pyfeed/readers/files"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/storage"
)

var openFiles = definition[files.Options]{
	name:   "open_files",
	doc:    "Reads many files at a time, by threads of its own",
	inputs: noInputs,
	defaults: files.Options{NumThreads: 2, Ordered: true, Interleave: 8, OnCorrupt: "raise", World: 1, Even: string(readers.EvenDrop),
		Storage: storage.Options{Compression: "auto", IO: "auto"}},
	check:   (*files.Options).Check,
	outputs: fileSlots,
	make:    func(c *call, o *files.Options) (readers.Reader, error) { return files.Open(c.ctx, o) },
}

var fileReader = definition[files.Options]{
	name:     "create_file_reader",
	doc:      "Reads one file, in the calling thread. num_threads, ordered, interleave and shuffle_files have no effect here; index, index_dir, shuffle_records and virtual_shards are refused",
	inputs:   noInputs,
	defaults: files.Options{NumThreads: 1, Interleave: 1, OnCorrupt: "raise", World: 1, Even: string(readers.EvenDrop), Storage: storage.Options{Compression: "auto", IO: "auto"}},
	check:    (*files.Options).Check,
	outputs:  fileSlots,
	make:     func(c *call, o *files.Options) (readers.Reader, error) { return files.OpenFile(c.ctx, o) },
}

// fileSlots returns the slots that the options give; nil: they are inferred from the files.
func fileSlots(_ [][]record.SlotAttributes, o *files.Options) ([]record.SlotAttributes, error) {
	return record.NormalizeSlots(o.Slots)
}

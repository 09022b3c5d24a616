package readers

import (
	"fmt"

	"github.com/pyfeed/pyfeed/pyfeed"
)

// VirtualShards says how a source divides the tuples of a pass among the processes of a job. The tuples are divided into
// Total virtual shards of equal length, whatever World is. Tuple number k of the job is tuple k/Total of virtual shard
// k%Total. Process number Rank reads the virtual shards Rank, Rank+World, Rank+2*World and so on: one tuple of each in
// turn. So after the same number of tuples each, all processes together are at the same tuple of the job.
type VirtualShards struct {
	Total, Rank, World int   // Total is 0 if the tuples are not divided
	Batched            bool  // the tuples of the reader are batches
	Records            int64 // of all processes, before Even
	Even               Even  // what happens if Total does not divide Records
}

// Sharded is a source whose tuples may be divided into virtual shards.
type Sharded interface {
	Reader
	// VirtualShards does not change.
	VirtualShards() VirtualShards
}

// Undivided returns the virtual shards of a process that reads all records.
func Undivided(records int64) VirtualShards {
	return VirtualShards{Total: 1, World: 1, Records: records, Even: EvenDrop}
}

// Check returns an error of the operator op if its attributes, which these are, are not valid.
func (v VirtualShards) Check(op string) error {
	switch {
	case v.Total == 0 && (v.Rank != 0 || v.World < 0 || v.World > 1):
		return pyfeed.Errorf(pyfeed.Invalid, "rank: expected 0 of world 1 without virtual_shards, found %d of world %d", v.Rank, v.World)
	case v.Total == 0:
		return nil
	case v.Total < 1 || v.Total > MaxVirtualShards:
		return pyfeed.Errorf(pyfeed.Invalid, "virtual_shards: expected 1 to %d, found %d", MaxVirtualShards, v.Total)
	case v.World < 1 || v.Rank < 0 || v.Rank >= v.World:
		return pyfeed.Errorf(pyfeed.Invalid, "rank: expected 0 to world - 1, found %d, and world %d", v.Rank, v.World)
	case v.Total%v.World != 0:
		return pyfeed.Errorf(pyfeed.Invalid, "world: expected a number that divides virtual_shards %d, found %d: give virtual_shards %d "+
			"in all processes, from the beginning of the job", v.Total, v.World, v.Total/gcd(v.Total, v.World)*v.World)
	}
	return CheckEven(op, v.Even)
}

// CheckRecords returns an error about an attribute, which has determined Total, if there are so few records that each
// process would get none.
func (v VirtualShards) CheckRecords(attribute string) error {
	if v.Length() > 0 || v.Records == 0 {
		return nil
	}
	return pyfeed.Errorf(pyfeed.Invalid, "%s: expected at most the number of records, %d, found %d: "+
		"give fewer, or even=\"repeat\" or \"pad\"", attribute, v.Records, v.Total)
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// MaxVirtualShards is the largest number of virtual shards. A process keeps a file open for each of its own, as far as the
// limit of open files allows.
const MaxVirtualShards = 1 << 16

// Own returns the number of virtual shards that the process reads.
func (v VirtualShards) Own() int { return v.Total / v.World }

// Shard returns the number of the process's i-th virtual shard.
func (v VirtualShards) Shard(i int) int { return v.Rank + i*v.World }

// Length returns the number of tuples that the process reads in a pass.
func (v VirtualShards) Length() int64 {
	total := int64(v.Total)
	length := v.Records / total
	if v.Records%total > 0 && v.Even != EvenDrop {
		length++
	}
	return length * int64(v.Own())
}

// RecordsOf returns how many records a virtual shard has: some have one more than others.
func (v VirtualShards) RecordsOf(shard int64) int64 {
	n := v.Records / int64(v.Total)
	if shard < v.Records%int64(v.Total) {
		n++
	}
	return n
}

// Fill returns what takes the place of the record that a virtual shard has less than others: its last one or, if it has
// none, the first one of another shard. EvenPad takes zeros like that record.
func (v VirtualShards) Fill(shard int64) (ofShard, k int64) {
	if n := v.RecordsOf(shard); n > 0 {
		return shard, n - 1
	}
	return shard % v.Records, 0
}

// OfJob returns the number in the job of the process's i-th tuple; if tuples are batches, a number that no other process
// has.
func (v VirtualShards) OfJob(i int64) int64 {
	switch {
	case v.Total == 0:
		return i
	case v.Batched:
		return i*int64(v.World) + int64(v.Rank)
	}
	own := int64(v.Own())
	return i/own*int64(v.Total) + int64(v.Shard(int(i%own)))
}

// OptionOfJob names an option of a state that is multiplied by Share.
func (v VirtualShards) OptionOfJob(name string) string {
	if v.Total == 0 || v.Batched {
		return name
	}
	return name + " * world"
}

// Share returns the number of tuples of the job for each tuple of this process; 1 if tuples are batches: each process has
// its part of every batch.
func (v VirtualShards) Share() int64 {
	if v.Total == 0 || v.Batched {
		return 1
	}
	return int64(v.World)
}

// OfProcess returns n tuples of a state, which are those of all processes, as a number of tuples of this one.
func (v VirtualShards) OfProcess(n int64) (int64, error) {
	share := v.Share()
	if n%share != 0 {
		return 0, pyfeed.Errorf(pyfeed.State, "state: expected a position that the number of processes, %d, divides, found %d tuples", share, n)
	}
	return n / share, nil
}

// String describes them in messages.
func (v VirtualShards) String() string {
	if v.Total == 0 {
		return "none"
	}
	return fmt.Sprintf("%d for rank %d of %d (%d records, even=%q)", v.Total, v.Rank, v.World, v.Records, v.Even)
}

// VirtualShards returns those of the source below the reader.
func (h *ReaderHolder) VirtualShards() VirtualShards {
	if s, is := h.reader.(Sharded); is {
		return s.VirtualShards()
	}
	for _, u := range h.upstreams() {
		v := u.VirtualShards()
		if _, batches := h.reader.(Divisible); batches {
			v.Batched = true
		}
		if v.Total > 0 {
			return v
		}
	}
	return VirtualShards{}
}

// CheckUndivided returns an error of the operator op, which divides tuples, if the source has done so already.
func (h *ReaderHolder) CheckUndivided(op string) error {
	if v := h.VirtualShards(); v.Total > 0 {
		return pyfeed.Errorf(pyfeed.Invalid, "%s: expected a reader whose data is not divided yet, found virtual shards: %v", op, v)
	}
	return nil
}

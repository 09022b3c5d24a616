package readertest

import "slices"

// Evens has the values of the attribute even.
var Evens = []string{"drop", "repeat", "pad"}

// PartOf returns what a rank gets of tuples that are divided among all ranks. It is written independently of readers.Part.
func PartOf[T any](all []T, zero T, rank, world int, even string) []T {
	missing := (world - len(all)%world) % world
	switch even {
	case "drop":
		all = all[:len(all)/world*world]
	case "repeat":
		all = slices.Concat(all, slices.Repeat(all, world)[:missing])
	case "pad":
		all = slices.Concat(all, slices.Repeat([]T{zero}, missing))
	}
	share := len(all) / world
	return all[rank*share : (rank+1)*share]
}

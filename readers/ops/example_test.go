package ops_test

import (
	"context"
	"fmt"
	"log"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers"
	"github.com/pyfeed/pyfeed/readers/ops"
)

// This example builds a chain of readers, and goes through one pass of it. The package of a format, or readers/all,
// registers formats for open_files.
func ExampleMake() {
	ctx := context.Background()
	numbers, err := ops.Make(ctx, "create_range_reader", ops.Attributes{"count": 6})
	if err != nil {
		log.Fatal(err)
	}
	shuffled, err := ops.Make(ctx, "create_shuffle_reader", ops.Attributes{"buffer_size": 6, "seed": 1}, numbers)
	if err != nil {
		log.Fatal(err)
	}
	batches, err := ops.Make(ctx, "create_batch_reader", ops.Attributes{"batch_size": 3}, shuffled)
	if err != nil {
		log.Fatal(err)
	}
	defer batches.Drop() // drops the readers below, too

	for batch, err := range batches.Pass(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		values, err := pyfeed.ValuesOf[int64](&batch.Slots[0])
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(values)
	}
	// Output:
	// [0 1 2]
	// [4 3 5]
}

// This example finds a reader that an operator has put into a variable, as the C library does.
func ExampleCreate() {
	scope := pyfeed.NewScope(nil)
	defer scope.Drop()
	if err := ops.Create(scope, "create_range_reader", "numbers", nil, []byte(`{"count": 3}`)); err != nil {
		log.Fatal(err)
	}
	numbers, err := readers.FindHolder(scope, "numbers")
	if err != nil {
		log.Fatal(err)
	}
	defer numbers.Drop()
	fmt.Println(numbers.Length())
	// Output: 3
}

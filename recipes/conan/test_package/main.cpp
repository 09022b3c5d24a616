// Reads the numbers 0 to 5 in batches of 3.
#include <cstdio>
#include <pyfeed.hpp>

int main() {
    const pyfeed::Scope scope;
    const pyfeed::Reader batches = pyfeed::create_range_reader(scope, "numbers", 6).batch(3);
    int64_t sum = 0;
    for (const pyfeed::Tuple &batch : batches)
        for (const int64_t number : batch.at(0).values<int64_t>()) sum += number;
    std::printf("pyfeed %s: the sum is %lld\n", pf_version(), static_cast<long long>(sum));
    return sum == 15 ? 0 : 1;
}

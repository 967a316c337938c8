//! Times in buckets of one percent, so that differences which no forecast can tell apart do not decide.

/// Where buckets begin, in nanoseconds: each one percent above the one before, up to what JSON holds.
static BEGINS: [u64; COUNT] = begins();

/// Buckets that begin below 2^53.
const COUNT: usize = 3189;

#[expect(clippy::large_stack_arrays, reason = "only while it is compiled")]
const fn begins() -> [u64; COUNT] {
    let mut begins = [0; COUNT];
    // Below 100 ns a percent is less than the unit.
    let mut at = 100_u64;
    let mut index = 1;
    while index < COUNT {
        begins[index] = at;
        at += at.div_ceil(100);
        index += 1;
    }
    begins
}

/// The bucket of a time.
pub fn bucket(ns: u64) -> u32 {
    let after = BEGINS.partition_point(|begin| *begin <= ns);
    u32::try_from(after).unwrap_or(u32::MAX) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_a_percent_wide_and_cover_what_json_holds() {
        for pair in BEGINS[1..].windows(2) {
            let width = pair[1] - pair[0];
            assert!(width * 100 >= pair[0] && (width - 1) * 100 < pair[0], "{pair:?}");
        }
        assert!(BEGINS[COUNT - 1] < 1 << 53 && BEGINS[COUNT - 1] > (1 << 53) / 102 * 100);
    }

    #[test]
    fn a_time_lies_in_its_bucket() {
        for (index, begin) in BEGINS.iter().enumerate().skip(1) {
            assert_eq!(bucket(*begin), u32::try_from(index).expect("small"));
            assert_eq!(bucket(*begin - 1), u32::try_from(index - 1).expect("small"));
        }
        assert_eq!(bucket(0), 0);
        assert_eq!(bucket(u64::MAX) as usize, COUNT - 1);
    }
}

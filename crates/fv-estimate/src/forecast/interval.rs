//! Seconds with the range they are known in.

use fv_spec::forecast::TimeInterval;

/// Nanoseconds of a second.
const NANOSECONDS: f64 = 1e9;
/// The largest integer that JavaScript holds: what is longer is shown as this.
const MOST: u64 = (1 << 53) - 1;

/// A time in seconds: not below `low`, not above `high`. None of the three is negative.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Seconds {
    /// Not below this.
    pub low: f64,
    /// The forecast.
    pub value: f64,
    /// Not above this.
    pub high: f64,
}

impl Seconds {
    /// `value`, at least `low` times and at most `high` times.
    pub fn within(value: f64, [low, high]: [f64; 2]) -> Self {
        Self { low: value * low.min(1.0), value, high: value * high.max(1.0) }
    }

    /// Both after each other.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self { low: self.low + other.low, value: self.value + other.value, high: self.high + other.high }
    }

    /// The same `count` times.
    #[must_use]
    pub fn times(self, count: f64) -> Self {
        Self { low: self.low * count, value: self.value * count, high: self.high * count }
    }

    /// Whole nanoseconds, rounded down; what no integer of JavaScript holds becomes the largest that one does.
    pub fn nanoseconds(self) -> TimeInterval {
        let [low, value, high] = [self.low, self.value, self.high].map(nanoseconds);
        TimeInterval { low_ns: low.min(value), value_ns: value, high_ns: high.max(value) }
    }
}

/// A conversion that saturates: not a number becomes the longest time, as a quotient by a rate of nothing does.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the conversion saturates")]
fn nanoseconds(seconds: f64) -> u64 {
    if seconds.is_nan() { MOST } else { ((seconds * NANOSECONDS) as u64).min(MOST) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nanoseconds_are_whole_and_bounded() {
        let time = Seconds::within(1.5, [0.5, 2.0]);
        assert_eq!(time.nanoseconds(), TimeInterval { low_ns: 750_000_000, value_ns: 1_500_000_000, high_ns: 3_000_000_000 });
        for odd in [f64::NAN, f64::INFINITY, 1e300] {
            assert_eq!(Seconds { low: odd, value: odd, high: odd }.nanoseconds().value_ns, MOST);
        }
        assert_eq!(Seconds { low: -1.0, value: -1.0, high: -1.0 }.nanoseconds(), TimeInterval::default());
    }
}

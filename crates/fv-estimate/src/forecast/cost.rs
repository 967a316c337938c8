//! What a request costs on a rented device.

use fv_spec::forecast::{Cost, TimeInterval};

/// Nanoseconds of an hour, and millionths of a unit of currency.
const HOUR: f64 = 3_600e9;
const MICRO: f64 = 1e6;
/// The most that JavaScript holds.
const MOST: u64 = (1 << 53) - 1;

/// The price of an hour of one device.
#[derive(Debug, Clone, PartialEq)]
pub struct Price {
    /// The device's id.
    pub hardware: String,
    /// ISO 4217 code.
    pub currency: String,
    /// In whole units of the currency.
    pub per_hour: f64,
    /// Where it was read.
    pub source: String,
    /// When, `YYYY-MM-DD`.
    pub date: String,
}

impl Price {
    /// What so long on so many devices costs, for one of `videos` that are made together.
    pub fn cost(&self, time: TimeInterval, devices: u32, videos: u32) -> Cost {
        let each = self.per_hour * f64::from(devices.max(1)) / f64::from(videos.max(1));
        let [low, value, high] = [time.low_ns, time.value_ns, time.high_ns].map(|time| micro(time, each));
        Cost {
            currency: self.currency.clone(),
            low_micro: low,
            value_micro: value,
            high_micro: high,
            price_per_hour: self.per_hour,
            source: self.source.clone(),
            date: self.date.clone(),
        }
    }
}

/// Millionths of the currency, rounded down.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a forecast; the conversion saturates"
)]
fn micro(time_ns: u64, per_hour: f64) -> u64 {
    ((time_ns as f64 / HOUR * per_hour * MICRO) as u64).min(MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_hour_costs_its_price() {
        let price = Price { hardware: "a".into(), currency: "USD".into(), per_hour: 2.5, source: "s".into(), date: "2026-11-30".into() };
        let hour = 3_600_000_000_000;
        let cost = price.cost(TimeInterval { low_ns: hour / 2, value_ns: hour, high_ns: 2 * hour }, 2, 4);
        assert_eq!([cost.low_micro, cost.value_micro, cost.high_micro], [625_000, 1_250_000, 2_500_000]);
    }
}

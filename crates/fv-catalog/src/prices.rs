//! Price files: what an hour of a device costs, as CSV.

use fv_estimate::forecast::cost::Price;

use crate::finding::suggest;

/// The columns, in any order.
pub const COLUMNS: [&str; 5] = ["hardware", "currency", "price_per_hour", "source", "date"];
/// No device costs more an hour, in any currency.
const MOST: f64 = 1e9;

/// Reads prices. `resolve` finds the id of a device by id or alias; `known` are all ids, for suggestions. Every device has one price.
///
/// # Errors
/// Everything that is wrong, each with its line.
pub fn read(path: &str, text: &str, mut resolve: impl FnMut(&str) -> Option<String>, known: &[String]) -> Result<Vec<Price>, Vec<String>> {
    let mut reader =
        csv::ReaderBuilder::new().flexible(true).trim(csv::Trim::All).from_reader(text.trim_start_matches('\u{feff}').as_bytes());
    let wrong = |line: u64, what: String| format!("{path}, line {line}: {what}");
    let header = match reader.headers() {
        Ok(header) => header.clone(),
        Err(error) => return Err(vec![wrong(1, format!("not CSV: {error}"))]),
    };
    let at = |name: &str| header.iter().position(|column| column.eq_ignore_ascii_case(name));
    let missing: Vec<&str> = COLUMNS.into_iter().filter(|name| at(name).is_none()).collect();
    if !missing.is_empty() {
        let text = format!("the header lacks {}; columns are {}", missing.join(", "), COLUMNS.join(", "));
        return Err(vec![wrong(1, text)]);
    }
    let columns = COLUMNS.map(|name| at(name).unwrap_or_default());
    let (mut prices, mut errors): (Vec<Price>, Vec<String>) = (Vec::new(), Vec::new());
    let mut line = 1;
    for record in reader.records() {
        line += 1;
        let record = match record {
            Ok(record) => record,
            Err(error) => {
                errors.push(wrong(line, format!("not CSV: {error}")));
                continue;
            }
        };
        line = record.position().map_or(line, |position| line.max(position.line()));
        let [name, currency, price, source, date] = columns.map(|column| record.get(column).unwrap_or_default());
        let before = errors.len();
        let hardware = resolve(name);
        match &hardware {
            None if name.is_empty() => errors.push(wrong(line, "`hardware` is empty".to_owned())),
            None => {
                let help = suggest(name, known.iter().map(String::as_str), "devices");
                errors.push(wrong(line, format!("no device is called {name:?}; {help}")));
            }
            Some(id) if prices.iter().any(|price| price.hardware == *id) => errors.push(wrong(line, format!("{id} has a price already"))),
            Some(_) => {}
        }
        if currency.len() != 3 || !currency.bytes().all(|byte| byte.is_ascii_uppercase()) {
            errors.push(wrong(line, format!("`currency` is {currency:?}, not three capital letters such as USD")));
        }
        let per_hour = price.parse::<f64>().ok().filter(|price| price.is_finite() && *price >= 0.0 && *price <= MOST);
        if per_hour.is_none() {
            errors.push(wrong(line, format!("`price_per_hour` is {price:?}, not a number from 0 to {MOST:e} with a decimal point")));
        }
        if source.is_empty() {
            errors.push(wrong(line, "`source` is empty: a price says where it was read".to_owned()));
        }
        if !is_date(date) {
            errors.push(wrong(line, format!("`date` is {date:?}, not a day such as 2026-11-30")));
        }
        if let (true, Some(hardware), Some(per_hour)) = (errors.len() == before, hardware, per_hour) {
            let [currency, source, date] = [currency, source, date].map(str::to_owned);
            prices.push(Price { hardware, currency, per_hour, source, date });
        }
    }
    if errors.is_empty() && prices.is_empty() {
        errors.push(wrong(1, "there is no price below the header".to_owned()));
    }
    if errors.is_empty() { Ok(prices) } else { Err(errors) }
}

/// `YYYY-MM-DD`, a day that there is.
fn is_date(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let [year, month, day] = parts[..] else { return false };
    if [year.len(), month.len(), day.len()] != [4, 2, 2] || !text.bytes().all(|b| b.is_ascii_digit() || b == b'-') {
        return false;
    }
    let [Ok(year), Ok(month), Ok(day)] = [year, month, day].map(str::parse::<u32>) else { return false };
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        2 => 28 + u32::from(leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return false,
    };
    (1..=days).contains(&day)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(text: &str) -> Result<Vec<Price>, Vec<String>> {
        let known = ["h200-sxm-141gb".to_owned(), "rtx-4090-24gb".to_owned()];
        read("prices.csv", text, |name| known.iter().find(|id| *id == name).cloned(), &known)
    }

    #[test]
    fn prices_are_read_in_any_order_of_columns() {
        let text = "\u{feff}date, source,hardware,currency,price_per_hour\r\n2026-02-28,\"a page, read\",h200-sxm-141gb,EUR, 3.20\r\n";
        let prices = ids(text).expect("sound");
        assert_eq!((prices[0].per_hour.to_bits(), prices[0].source.as_str()), (3.2_f64.to_bits(), "a page, read"));
    }

    #[test]
    fn everything_wrong_is_said_with_its_line() {
        let text = "hardware,currency,price_per_hour,source,date\n\
                    h200-sxm-141gb,usd,\"3,2\",,2026-02-30\n\
                    rtx-4090,USD,1,x,2026-01-01\n\
                    rtx-4090-24gb,USD,nan,x,2026-01-01\n\
                    rtx-4090-24gb,USD,-1,x,2026-1-1\n";
        let errors = ids(text).expect_err("wrong");
        let at = |line: usize| errors.iter().filter(|error| error.contains(&format!("line {line}:"))).count();
        assert_eq!([at(2), at(3), at(4), at(5)], [4, 1, 1, 2], "{errors:#?}");
        assert!(errors.iter().any(|error| error.contains("rtx-4090-24gb")), "a suggestion: {errors:#?}");
        for (text, what) in [("", "header lacks"), ("hardware,currency,price_per_hour,source,date\n", "no price")] {
            assert!(ids(text).expect_err("wrong")[0].contains(what));
        }
        let twice = "hardware,currency,price_per_hour,source,date\nrtx-4090-24gb,USD,1,x,2026-01-01\nrtx-4090-24gb,USD,2,x,2026-01-01\n";
        assert!(ids(twice).expect_err("wrong")[0].contains("line 3"));
    }
}

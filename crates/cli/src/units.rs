//! Figures with units, as netmap's tools write them: `14.88 Mpps`, `9.523 Gbps`.

/// `value` with three decimals and the prefix that fits: `norm(14_880_952.0, "pps", true)` is
/// `14.881 Mpps`. Without `scale` (pkt-gen's `-N`) the plain number: `14880952 pps`.
#[must_use]
pub fn norm(value: f64, unit: &str, scale: bool) -> String {
    if !scale {
        return format!("{value:.0} {unit}");
    }
    let (scaled, prefix) = prefixed(value);
    let decimals = if prefix.is_empty() { 0 } else { 3 };
    format!("{scaled:.decimals$} {prefix}{unit}")
}

/// Brings `value` below 1,000 where a prefix can.
fn prefixed(value: f64) -> (f64, &'static str) {
    let mut scaled = (value, "");
    for prefix in ["K", "M", "G", "T"] {
        if scaled.0.abs() >= 1000.0 {
            scaled = (scaled.0 / 1000.0, prefix);
        }
    }
    scaled
}

/// `value` for a column aligned to the right: `14.88 M`, `9.52 G`, `640  `; the prefix, or a space in its place, comes last, so
/// that the numbers stand below each other.
#[must_use]
pub fn column(value: f64) -> String {
    let (scaled, prefix) = prefixed(value);
    match prefix {
        "" => format!("{scaled:.0}  "),
        prefix => format!("{scaled:.2} {prefix}"),
    }
}

/// A packet rate: `14.881 Mpps`.
#[must_use]
pub fn pps(rate: f64) -> String {
    norm(rate, "pps", true)
}

/// A bit rate: `9.523 Gbps`.
#[must_use]
pub fn bps(rate: f64) -> String {
    norm(rate, "bps", true)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: in a column the prefix has a place of its own.
    #[test]
    fn columns() {
        assert_eq!([0.0, 640.0, 14.88e6].map(column), ["0  ", "640  ", "14.88 M"]);
    }

    /// Objective: the prefix follows the size, and `-N` gives plain numbers.
    #[test]
    fn prefixes() {
        assert_eq!(norm(14_880_952.0, "pps", true), "14.881 Mpps");
        assert_eq!(norm(14_880_952.0, "pps", false), "14880952 pps");
        assert_eq!(pps(0.0), "0 pps");
        assert_eq!(pps(999.0), "999 pps");
        assert_eq!(pps(1000.0), "1.000 Kpps");
        assert_eq!(bps(9.5234e9), "9.523 Gbps");
        assert_eq!(bps(3e18), "3000000.000 Tbps");
    }
}

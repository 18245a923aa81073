//! Figures with units, as netmap's tools write them: `14.88 Mpps`, `9.523 Gbps`.

/// `value` with four significant digits or so and the prefix that fits: `norm(14_880_952.0, "pps", true)` is
/// `14.881 Mpps`. Without `scale` (pkt-gen's `-N`) the plain number: `14880952 pps`.
#[must_use]
pub fn norm(value: f64, unit: &str, scale: bool) -> String {
    if !scale {
        return format!("{value:.0} {unit}");
    }
    const PREFIXES: [&str; 5] = ["", "K", "M", "G", "T"];
    let (mut scaled, mut prefix) = (value, 0);
    while scaled.abs() >= 1000.0 && prefix + 1 < PREFIXES.len() {
        scaled /= 1000.0;
        prefix += 1;
    }
    let decimals = if prefix == 0 { 0 } else { 3 };
    format!("{scaled:.decimals$} {}{unit}", PREFIXES.get(prefix).copied().unwrap_or(""))
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

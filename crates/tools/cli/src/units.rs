//! Formats figures with units, as netmap's tools do: `14.88 Mpps`, `9.523 Gbps`.

/// Formats `value` with three decimals and a suitable prefix: `norm(14_880_952.0, "pps", true)` is `14.881 Mpps`.
/// Without `scale` (pkt-gen's `-N`) returns the plain number: `14880952 pps`.
#[must_use]
pub fn norm(value: f64, unit: &str, scale: bool) -> String {
    if !scale {
        return format!("{value:.0} {unit}");
    }
    let (scaled, prefix) = prefixed(value);
    let decimals = if prefix.is_empty() { 0 } else { 3 };
    format!("{scaled:.decimals$} {prefix}{unit}")
}

/// Scales `value` to less than 1,000, as far as the prefixes up to T permit. Returns the scaled value and its prefix.
fn prefixed(value: f64) -> (f64, &'static str) {
    let mut scaled = (value, "");
    for prefix in ["K", "M", "G", "T"] {
        if scaled.0.abs() >= 1000.0 {
            scaled = (scaled.0 / 1000.0, prefix);
        }
    }
    scaled
}

/// Formats `value` for a column aligned to the right: `14.88M`, `9.52G`, `640 `. The last character is the prefix or a
/// blank, so that the numbers align. There is no blank before the prefix, so that awk reads number and prefix as one
/// field.
#[must_use]
pub fn column(value: f64) -> String {
    let (scaled, prefix) = prefixed(value);
    match prefix {
        "" => format!("{scaled:.0} "),
        prefix => format!("{scaled:.2}{prefix}"),
    }
}

/// Formats a packet rate: `14.881 Mpps`.
#[must_use]
pub fn pps(rate: f64) -> String {
    norm(rate, "pps", true)
}

/// Formats a bit rate: `9.523 Gbps`.
#[must_use]
pub fn bps(rate: f64) -> String {
    norm(rate, "bps", true)
}

/// Formats a size of memory: `640 B`, `4.0 MiB`.
#[must_use]
pub fn memory(bytes: u64) -> String {
    let mut size = (bytes as f64, "B");
    for unit in ["KiB", "MiB", "GiB", "TiB"] {
        if size.0 >= 1024.0 {
            size = (size.0 / 1024.0, unit);
        }
    }
    let decimals = usize::from(size.1 != "B");
    format!("{:.decimals$} {}", size.0, size.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: in a column, the last character is the prefix, or a blank if there is none.
    #[test]
    fn the_prefix_has_its_own_place_in_a_column() {
        assert_eq!([0.0, 640.0, 14.88e6].map(column), ["0 ", "640 ", "14.88M"]);
    }

    /// Objective: sizes of memory use powers of 1,024.
    #[test]
    fn memory_counts_in_powers_of_1024() {
        assert_eq!([0, 1023, 1024, 4 << 20, 3 << 30].map(memory), ["0 B", "1023 B", "1.0 KiB", "4.0 MiB", "3.0 GiB"]);
    }

    /// Objective: the prefix depends on the size, and `-N` gives plain numbers.
    #[test]
    fn the_prefix_depends_on_the_size() {
        assert_eq!(norm(14_880_952.0, "pps", true), "14.881 Mpps");
        assert_eq!(norm(14_880_952.0, "pps", false), "14880952 pps");
        assert_eq!(pps(0.0), "0 pps");
        assert_eq!(pps(999.0), "999 pps");
        assert_eq!(pps(1000.0), "1.000 Kpps");
        assert_eq!(bps(9.5234e9), "9.523 Gbps");
        assert_eq!(bps(3e18), "3000000.000 Tbps");
    }
}

//! Reads files of /proc and /sys, any of which may be missing.

use std::fs;
use std::path::Path;

use netvale_control::options::numbers;

/// The highest CPU number in Linux's `cpu_set_t`.
const MAX_CPU: u32 = 1023;

/// Returns a file's text, trimmed; `None` if it cannot be read.
pub fn read(path: impl AsRef<Path>) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

/// Returns the number in a file; `None` if it cannot be read or is not a number.
pub fn number<T: std::str::FromStr>(path: impl AsRef<Path>) -> Option<T> {
    read(path)?.parse().ok()
}

/// Returns the choice in brackets, as in `always [madvise] never`; `None` if nothing is in brackets.
pub fn chosen(text: &str) -> Option<&str> {
    text.split_once('[')?.1.split_once(']').map(|(choice, _)| choice)
}

/// Parses a list of CPUs such as `0-3,8`. Returns an empty list for each of the kernel's notations for no CPU.
pub fn cpus(text: &str) -> Vec<usize> {
    let found = numbers(text.trim(), 0..=MAX_CPU).unwrap_or_default();
    found.into_iter().map(|cpu| cpu as usize).collect()
}

/// Formats CPUs as a list with ranges.
pub fn list(cpus: &[usize]) -> String {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for &cpu in cpus {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == cpu => *last = cpu,
            _ => ranges.push((cpu, cpu)),
        }
    }
    let texts =
        ranges.iter().map(|(first, last)| if first == last { first.to_string() } else { format!("{first}-{last}") });
    texts.collect::<Vec<_>>().join(",")
}

/// Formats CPUs as [`list`] does, after a noun: `CPU 1`, `CPUs 0-3`.
pub fn named(cpus: &[usize]) -> String {
    let noun = if cpus.len() == 1 { "CPU" } else { "CPUs" };
    format!("{noun} {}", list(cpus))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: lists of CPUs are parsed and formatted in the kernel's notation; an empty list stays empty.
    #[test]
    fn lists_of_cpus_are_written_as_the_kernel_does() {
        assert_eq!(cpus("0-2,5\n"), [0, 1, 2, 5]);
        assert!(["", "\n", "(null)"].iter().all(|none| cpus(none).is_empty()));
        assert_eq!(list(&[0, 1, 2, 5]), "0-2,5");
        assert_eq!(list(&[]), "");
        assert_eq!((named(&[1]), named(&[0, 1])), ("CPU 1".into(), "CPUs 0-1".into()));
    }

    /// Objective: the bracketed setting is the active one.
    #[test]
    fn the_bracketed_choice_is_in_force() {
        assert_eq!(chosen("always [madvise] never"), Some("madvise"));
        assert_eq!(chosen("never"), None);
    }

    /// Objective: for a missing file, the result is `None`, not an error.
    #[test]
    fn a_missing_file_is_not_an_error() {
        assert_eq!(read("/proc/there/is/none"), None);
        assert_eq!(number::<u64>("/proc/self/stat"), None);
    }
}

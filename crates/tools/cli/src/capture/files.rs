//! The output files of a capture: one file, or a sequence of files from which the oldest are removed.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};

use super::sink::Sink;

/// The output of a capture.
#[derive(Debug)]
pub struct OutputFiles {
    path: PathBuf,
    ring: Option<FileRing>,
}

/// A sequence of numbered files.
#[derive(Debug, Default)]
struct FileRing {
    /// Maximum number of files to keep; `None` to keep all.
    keep: Option<u64>,
    made: u64,
    there: VecDeque<PathBuf>,
}

impl OutputFiles {
    /// Writes to a single file; `-` is standard output.
    #[must_use]
    pub fn one(path: &Path) -> OutputFiles {
        OutputFiles { path: path.to_owned(), ring: None }
    }

    /// Writes to a sequence of files named after `path`, and keeps the newest `keep` files, or all files if `keep` is
    /// `None`.
    #[must_use]
    pub fn ring(path: &Path, keep: Option<u64>) -> OutputFiles {
        OutputFiles { path: path.to_owned(), ring: Some(FileRing { keep, ..FileRing::default() }) }
    }

    /// Returns whether the output is a sequence of files.
    #[must_use]
    pub fn goes_on(&self) -> bool {
        self.ring.is_some()
    }

    /// Returns whether the output is standard output.
    #[must_use]
    pub fn is_stdout(&self) -> bool {
        self.path.as_os_str() == "-"
    }

    /// Returns the path of the current file, for messages.
    #[must_use]
    pub fn current(&self) -> &Path {
        self.ring.as_ref().and_then(|ring| ring.there.back()).unwrap_or(&self.path)
    }

    /// Returns the number of files created so far.
    #[must_use]
    pub fn made(&self) -> u64 {
        self.ring.as_ref().map_or(1, |ring| ring.made)
    }

    /// Creates the next file. If the maximum number of files exists already, first removes the oldest one. If the path
    /// is a FIFO, waits for its reader until `stop` becomes readable.
    ///
    /// # Errors
    /// The file cannot be created, or the oldest file cannot be removed; `BrokenPipe` if no reader opened the FIFO.
    pub fn make_next(&mut self, stop: &UnixStream) -> io::Result<Sink> {
        let to_stdout = self.is_stdout();
        match &mut self.ring {
            None if to_stdout => Sink::stdout(),
            None => Sink::open(&self.path, stop),
            Some(ring) => ring.make_next(&self.path),
        }
    }
}

impl FileRing {
    fn make_next(&mut self, path: &Path) -> io::Result<Sink> {
        if self.keep.is_some_and(|keep| self.there.len() as u64 >= keep)
            && let Some(oldest) = self.there.pop_front()
        {
            match std::fs::remove_file(&oldest) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
                _ => {}
            }
        }
        self.made += 1;
        self.there.push_back(name(path, self.made, &stamp()));
        Sink::make(&self.there[self.there.len() - 1])
    }
}

/// Returns a file's name in dumpcap's form: `a.pcapng` becomes `a_00001_20260101120000.pcapng`.
fn name(path: &Path, number: u64, stamp: &str) -> PathBuf {
    let mut name = OsString::from(path.file_stem().unwrap_or_default());
    name.push(format!("_{number:05}_{stamp}"));
    if let Some(extension) = path.extension() {
        name.push(".");
        name.push(extension);
    }
    path.with_file_name(name)
}

/// Returns the UTC time in digits: 20260101120000.
fn stamp() -> String {
    let mut text = String::new();
    // Writing into a String does not fail.
    let _ = SystemTime.format_time(&mut Writer::new(&mut text));
    text.chars().filter(char::is_ascii_digit).take(14).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: names have dumpcap's form, even if the given path contains dots, spaces or no extension.
    #[test]
    fn names_have_dumpcaps_form() {
        let of = |path: &str| name(Path::new(path), 7, "20260101120000").to_string_lossy().into_owned();
        assert_eq!(of("/tmp/a.pcapng"), "/tmp/a_00007_20260101120000.pcapng");
        assert_eq!(of("x.y/a b"), "x.y/a b_00007_20260101120000");
        assert_eq!(of(".hidden"), ".hidden_00007_20260101120000");
        assert!(stamp().len() == 14 && stamp().starts_with("20"), "{}", stamp());
    }

    /// Objective: the newest files stay, even if another process removes one.
    #[test]
    fn the_newest_files_of_the_ring_stay() {
        let dir = tempfile::tempdir().unwrap();
        let mut files = OutputFiles::ring(&dir.path().join("a.pcapng"), Some(3));
        let (stop, _ends) = UnixStream::pair().unwrap();
        let mut made = Vec::new();
        for n in 0..6 {
            files.make_next(&stop).unwrap();
            made.push(files.current().to_owned());
            if n == 4 {
                std::fs::remove_file(&made[3]).unwrap();
            }
        }
        let there: Vec<bool> = made.iter().map(|path| path.exists()).collect();
        assert_eq!((there, files.made()), (vec![false, false, false, false, true, true], 6));
    }
}

//! The text of a thread's last error, which says more than an errno.

use std::cell::RefCell;
use std::ffi::CString;

use libc::c_char;

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// Keeps the text of an error for [`netvale_error`].
pub fn note(text: &str) {
    // The text is cut at a NUL byte, as a C string ends there.
    let text = text.split('\0').next().unwrap_or_default();
    // This fails only in a thread that is ending, which no longer reads errors.
    let _ = LAST.try_with(|last| *last.borrow_mut() = CString::new(text).unwrap_or_default());
}

/// Calls `f`, and then restores the text of an earlier error, if there is one: it is more specific than the errors of
/// `f`.
pub fn keep<T>(f: impl FnOnce() -> T) -> T {
    let before = LAST.try_with(|last| last.borrow().clone()).unwrap_or_default();
    let done = f();
    if !before.is_empty() {
        let _ = LAST.try_with(|last| *last.borrow_mut() = before);
    }
    done
}

/// Returns the text of this thread's last error, which is valid until the thread's next error; an empty text if there
/// was no error (netvale.h).
// SAFETY: only this library defines the name.
#[allow(unsafe_code)]
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn netvale_error() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// Clears the text (netvale.h).
// SAFETY: only this library defines the name.
#[allow(unsafe_code)]
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn netvale_error_clear() {
    note("");
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use super::*;

    #[allow(unsafe_code)]
    fn told() -> String {
        // SAFETY: a C string that lives until this thread's next error.
        unsafe { CStr::from_ptr(netvale_error()) }.to_string_lossy().into_owned()
    }

    /// Objective: a thread reads its own last error, cut at a NUL, and an empty text once the text is cleared.
    #[test]
    fn a_thread_reads_its_own_last_error() {
        note("first");
        note("second\0of it");
        assert_eq!(told(), "second");
        assert_eq!(std::thread::spawn(told).join().unwrap(), "");
        netvale_error_clear();
        assert_eq!(told(), "");
    }
}

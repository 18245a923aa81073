//! `nmreq_options_decode`: passes the options in a port specification to the program's own parsers.
#![allow(unsafe_code)]

use std::ffi::CString;

use libc::{c_char, c_int, c_uint, c_void};
use rustix::io::Errno;

use super::context::fail;
use super::requests::text;
use super::structs::NmCtx;

/// Maximum number of keys that an option may have.
pub const MAX_KEYS: usize = 16;

const KEY_ALLOW_EMPTY: c_uint = 1;
const KEY_MUST_SET: c_uint = 2;
const OPTION_DISABLED: c_uint = 1;
const OPTION_ALLOW_EMPTY: c_uint = 2;

/// `struct nmreq_opt_key` of libnetmap.h: a key that an option may have.
#[repr(C)]
pub struct OptKey {
    key: *const c_char,
    id: c_int,
    flags: c_uint,
}

/// `struct nmreq_opt_parser` of libnetmap.h: the program's parser of one option.
#[repr(C, align(16))]
pub struct Parser {
    prefix: *const c_char,
    parse: Option<unsafe extern "C" fn(*mut ParseCtx) -> c_int>,
    default_key: c_int,
    nr_keys: c_int,
    flags: c_uint,
    next: *mut Parser,
    keys: [OptKey; MAX_KEYS],
}

/// `struct nmreq_parse_ctx` of libnetmap.h: a parser's argument, with the value of each key; the value of an absent key
/// is null.
#[repr(C)]
pub struct ParseCtx {
    ctx: *mut NmCtx,
    token: *mut c_void,
    keys: [*const c_char; MAX_KEYS],
}

/// Passes each option in `options` (`@name=value`, `@name:key=value,…`) to the parser with the option's name. Returns 0
/// if all parsers succeed, the result of the first parser that fails, or -1 for an invalid option.
///
/// # Safety
/// The conditions in libnetmap.h.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn nmreq_options_decode(
    options: *const c_char,
    parsers: *mut Parser,
    token: *mut c_void,
    ctx: *mut NmCtx,
) -> c_int {
    // SAFETY: the caller's contract.
    let Some(all) = (unsafe { text(options) }) else {
        // SAFETY: the caller's contract.
        return unsafe { fail(ctx, Errno::INVAL, "the options are not UTF-8 text") };
    };
    for option in all.split('@').filter(|o| !o.is_empty()) {
        // SAFETY: the caller's contract.
        match unsafe { one(option, parsers, token, ctx) } {
            Ok(0) => {}
            Ok(failed) => return failed,
            // SAFETY: the caller's contract.
            Err((errno, why)) => return unsafe { fail(ctx, errno, &format!("option '{option}': {why}")) },
        }
    }
    0
}

type OptionError = (Errno, String);

fn wrong(why: impl Into<String>) -> OptionError {
    (Errno::INVAL, why.into())
}

/// # Safety
/// The conditions of [`nmreq_options_decode`].
unsafe fn one(option: &str, parsers: *mut Parser, token: *mut c_void, ctx: *mut NmCtx) -> Result<c_int, OptionError> {
    let end = option.find([':', '=']).unwrap_or(option.len());
    let (name, rest) = option.split_at(end);
    // SAFETY: the caller's contract.
    let parser = unsafe { find(parsers, name) }.ok_or_else(|| (Errno::OPNOTSUPP, "unknown option".to_owned()))?;
    if parser.flags & OPTION_DISABLED != 0 {
        return Err((Errno::OPNOTSUPP, "disabled".to_owned()));
    }
    let mut values: [Option<CString>; MAX_KEYS] = std::array::from_fn(|_| None);
    let mut assign = |key: &OptKey, value: Option<&str>| -> Result<(), OptionError> {
        let id = usize::try_from(key.id).ok().filter(|id| *id < MAX_KEYS).ok_or_else(|| wrong("invalid key number"))?;
        if values[id].is_some() {
            return Err(wrong("a key occurs twice"));
        }
        if value.is_none() && key.flags & KEY_ALLOW_EMPTY == 0 {
            return Err(wrong("a key needs a value"));
        }
        values[id] = CString::new(value.unwrap_or("")).ok();
        Ok(())
    };
    let keys = &parser.keys[..usize::try_from(parser.nr_keys).unwrap_or(0).min(MAX_KEYS)];
    if let Some(value) = rest.strip_prefix('=') {
        let default = usize::try_from(parser.default_key).ok().and_then(|i| keys.get(i));
        assign(default.ok_or_else(|| wrong("the option has no default key"))?, Some(value))?;
    } else if let Some(list) = rest.strip_prefix(':') {
        for part in list.split(',') {
            let (key, value) = part.split_once('=').map_or((part, None), |(k, v)| (k, Some(v)));
            // SAFETY: the caller's contract: the names are C strings.
            let found = keys.iter().find(|k| unsafe { text(k.key) } == Some(key));
            assign(found.ok_or_else(|| wrong(format!("unknown key '{key}'")))?, value)?;
        }
    } else if parser.flags & OPTION_ALLOW_EMPTY == 0 {
        return Err(wrong("the option needs a value"));
    }
    let missing = keys.iter().find(|k| {
        k.flags & KEY_MUST_SET != 0 && usize::try_from(k.id).is_ok_and(|id| id < MAX_KEYS && values[id].is_none())
    });
    if missing.is_some() {
        return Err(wrong("a required key is missing"));
    }
    let keys = std::array::from_fn(|i| values[i].as_ref().map_or(std::ptr::null(), |v| v.as_ptr()));
    let mut parse_ctx = ParseCtx { ctx, token, keys };
    // SAFETY: the program's callback, with a context that lives during the call.
    Ok(parser.parse.map_or(0, |parse| unsafe { parse(&raw mut parse_ctx) }))
}

/// Returns the first parser in the list whose prefix is `name`; `None` if there is no such parser.
///
/// # Safety
/// The list's parsers are valid.
unsafe fn find<'a>(mut parser: *mut Parser, name: &str) -> Option<&'a Parser> {
    // SAFETY: the caller's contract.
    unsafe {
        while !parser.is_null() {
            if text((*parser).prefix) == Some(name) {
                return parser.as_ref();
            }
            parser = (*parser).next;
        }
    }
    None
}

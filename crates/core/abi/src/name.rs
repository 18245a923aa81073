//! NUL-terminated names in fixed arrays, as `nr_name` and `ni_name` hold them.

/// Returns the name in `field`: the bytes up to the first NUL, or all bytes if there is no NUL.
///
/// ```
/// assert_eq!(netvale_abi::name::get(b"em0\0\0\0"), b"em0");
/// assert_eq!(netvale_abi::name::get(b"full"), b"full");
/// ```
pub fn get(field: &[u8]) -> &[u8] {
    field.split(|&byte| byte == 0).next().unwrap_or(field)
}

/// Returns `name` as a field of `N` bytes, zero-padded; `None` if `name` contains a NUL or is longer than `N - 1`
/// bytes.
///
/// ```
/// assert_eq!(netvale_abi::name::fit::<4>(b"em0"), Some(*b"em0\0"));
/// assert_eq!(netvale_abi::name::fit::<4>(b"eth0"), None);
/// ```
pub fn fit<const N: usize>(name: &[u8]) -> Option<[u8; N]> {
    (name.len() < N && !name.contains(&0)).then(|| cut(name))
}

/// Returns `name` as a field of `N` bytes, zero-padded and cut to `N - 1` bytes, as netmap cuts `ni_name`.
///
/// ```
/// assert_eq!(netvale_abi::name::cut::<4>(b"vale0:a"), *b"val\0");
/// ```
pub fn cut<const N: usize>(name: &[u8]) -> [u8; N] {
    let mut field = [0; N];
    for (to, &from) in field.iter_mut().take(N.saturating_sub(1)).zip(name) {
        *to = from;
    }
    field
}

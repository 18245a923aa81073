//! Compile-time checks of a struct's layout.

/// Asserts the size of a `#[repr(C)]` struct and the offset of each named field, and that the struct is `Copy`, so that
/// it may be shared as bytes.
///
/// ```text
/// assert_layout!(NetmapSlot, size 16, { buf_idx: 0, len: 4, flags: 6, ptr: 8 });
/// ```
macro_rules! assert_layout {
    ($type:ty, size $size:literal, { $($field:ident : $offset:literal),* $(,)? }) => {
        const _: () = {
            const fn is_copy<T: Copy>() {}
            is_copy::<$type>();
            assert!(core::mem::size_of::<$type>() == $size, concat!(stringify!($type), " has the wrong size"));
            $(assert!(
                core::mem::offset_of!($type, $field) == $offset,
                concat!(stringify!($type), ".", stringify!($field), " is at the wrong offset")
            );)*
        };
    };
}
pub(crate) use assert_layout;

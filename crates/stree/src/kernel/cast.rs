//! Views of the same bytes as lines, lanes, keys and bytes.
//!
//! Every cast here goes between arrays of integers: no padding, every bit pattern a value, alignment checked or larger than
//! needed. The lifetime and mutability of the view are those of the reference it came from.

use super::Line;
use crate::key::Key;

/// The line as sixteen `u32`.
#[inline(always)]
pub(crate) fn u32_lanes(line: &Line) -> &[u32; 16] {
    // SAFETY: same size, smaller alignment, plain integers.
    unsafe { &*std::ptr::from_ref(line).cast() }
}

/// The line as sixteen `u32`, to write.
#[inline(always)]
pub(crate) fn u32_lanes_mut(line: &mut Line) -> &mut [u32; 16] {
    // SAFETY: same size, smaller alignment, plain integers.
    unsafe { &mut *std::ptr::from_mut(line).cast() }
}

/// The line as thirty-two `u16`.
#[inline(always)]
pub(crate) fn u16_lanes(line: &Line) -> &[u16; 32] {
    // SAFETY: same size, smaller alignment, plain integers.
    unsafe { &*std::ptr::from_ref(line).cast() }
}

/// The line as thirty-two `u16`, to write.
#[inline(always)]
pub(crate) fn u16_lanes_mut(line: &mut Line) -> &mut [u16; 32] {
    // SAFETY: same size, smaller alignment, plain integers.
    unsafe { &mut *std::ptr::from_mut(line).cast() }
}

/// Lines as bytes, as they are in a file.
pub fn bytes(lines: &[Line]) -> &[u8] {
    // SAFETY: a slice of lines is `64 * len` initialised bytes.
    unsafe { std::slice::from_raw_parts(lines.as_ptr().cast(), lines.len() * 64) }
}

/// Lines as bytes, to write.
pub fn bytes_mut(lines: &mut [Line]) -> &mut [u8] {
    // SAFETY: a slice of lines is `64 * len` initialised bytes, and any bytes are lines.
    unsafe { std::slice::from_raw_parts_mut(lines.as_mut_ptr().cast(), lines.len() * 64) }
}

/// Keys as bytes.
pub(crate) fn key_bytes<K: Key>(keys: &[K]) -> &[u8] {
    // SAFETY: `Key` is sealed over integer types: initialised bytes, no padding.
    unsafe { std::slice::from_raw_parts(keys.as_ptr().cast(), size_of_val(keys)) }
}

/// Bytes as lines, if they start on a 64-byte boundary. A tail shorter than a line is left out.
pub(crate) fn lines_of(bytes: &[u8]) -> Option<&[Line]> {
    if bytes.as_ptr().align_offset(64) != 0 {
        return None;
    }
    // SAFETY: aligned as checked, whole lines within the slice, any bytes are lines.
    Some(unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast(), bytes.len() / 64) })
}

/// Bytes as lines to write, if they start on a 64-byte boundary. A tail shorter than a line is left out.
pub(crate) fn lines_of_mut(bytes: &mut [u8]) -> Option<&mut [Line]> {
    if bytes.as_ptr().align_offset(64) != 0 {
        return None;
    }
    // SAFETY: aligned as checked, whole lines within the slice, any bytes are lines.
    Some(unsafe { std::slice::from_raw_parts_mut(bytes.as_mut_ptr().cast(), bytes.len() / 64) })
}

/// Lines as keys.
#[inline(always)]
pub(crate) fn keys<K: Key>(lines: &[Line]) -> &[K] {
    // SAFETY: `Key` is sealed over integer types; a line holds `PER_LINE` of them and is aligned for them.
    unsafe { std::slice::from_raw_parts(lines.as_ptr().cast(), lines.len() * K::PER_LINE) }
}

/// Lines as keys, to write.
pub(crate) fn keys_mut<K: Key>(lines: &mut [Line]) -> &mut [K] {
    // SAFETY: as for `keys`, and any key is valid bytes of a line.
    unsafe { std::slice::from_raw_parts_mut(lines.as_mut_ptr().cast(), lines.len() * K::PER_LINE) }
}

/// A window of one line's worth of 8-byte keys.
#[inline(always)]
pub(crate) fn window_u64<K: Key>(window: &[K]) -> &[u64; 8] {
    assert!(size_of::<K>() == 8 && window.len() == 8);
    // SAFETY: eight 8-byte integers, as asserted; the alignment of `i64` and `u64` is the same.
    unsafe { &*window.as_ptr().cast() }
}

/// A window of one line's worth of 4-byte keys.
#[inline(always)]
pub(crate) fn window_u32<K: Key>(window: &[K]) -> &[u32; 16] {
    assert!(size_of::<K>() == 4 && window.len() == 16);
    // SAFETY: sixteen 4-byte integers, as asserted; the alignment of `i32` and `u32` is the same.
    unsafe { &*window.as_ptr().cast() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn views_agree() {
        let mut lines = [Line([1, 2, 3, 4, 5, 6, 7, u64::MAX]), Line::ZERO];
        assert_eq!(keys::<u64>(&lines)[7], u64::MAX);
        assert_eq!(keys::<i32>(&lines)[14..17], [-1, -1, 0]);
        assert_eq!(u32_lanes(&lines[0])[2], 2);
        assert_eq!(u16_lanes(&lines[0])[4], 2);
        keys_mut::<i64>(&mut lines)[8] = -1;
        u32_lanes_mut(&mut lines[1])[15] = 9;
        u16_lanes_mut(&mut lines[1])[4] = 3;
        assert_eq!(lines[1].0, [u64::MAX, 3, 0, 0, 0, 0, 0, 9 << 32]);
        assert_eq!(window_u64::<i64>(&keys(&lines)[1..9])[7], u64::MAX);
        assert_eq!(window_u32::<u32>(&keys(&lines)[2..18])[0], 2);
    }

    #[test]
    fn unaligned_bytes_are_not_lines() {
        let mut lines = [Line::ZERO; 2];
        let bytes = bytes_mut(&mut lines);
        bytes[64] = 5;
        assert!(lines_of(&bytes[8..]).is_none());
        assert!(lines_of_mut(&mut bytes[1..]).is_none());
        assert_eq!(lines_of(&bytes[..127]).unwrap().len(), 1);
        assert_eq!(lines_of_mut(bytes).unwrap()[1].0[0], 5);
        assert_eq!(super::bytes(&lines)[64], 5);
    }
}

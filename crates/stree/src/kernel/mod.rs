//! The instruction-set layer: the 64-byte line, the comparisons made within one line, prefetch, and the one place where a
//! batch is dispatched to the code compiled for an instruction set.
//!
//! # How the pieces fit
//!
//! A batch look-up is a struct that implements [`Batch`]: its `run` is generic over a [`Vector`], the handful of in-line
//! comparisons, and is inlined whole into one function per instruction set ([`dispatch`]). So the processor is asked what it
//! can do once per batch, the loop over nodes contains no feature test, and everything in it, the caller's closure included,
//! is compiled with the wide registers and the population count. The scalar `Vector` is the oracle: the tests run every
//! look-up with every available instruction set and compare.
//!
//! # Soundness
//!
//! A `Vector` other than [`Scalar`](scalar::Scalar) runs only inside `dispatch`, after detection. Its operations read one
//! whole `&Line`, or a window of exactly one line's worth of keys, through a reference; no address is ever computed from data.
//! The casts between lines, keys and bytes in [`cast`] check alignment and length and go only between types without padding
//! in which every bit pattern is a value. What is left is prefetch, which cannot fault.

#![allow(unsafe_code)]

pub(crate) mod cast;
pub(crate) mod scalar;

#[cfg(target_arch = "aarch64")]
mod neon;
#[cfg(target_arch = "x86_64")]
mod x86;

use crate::error::{Error, Result};
use crate::key::Key;

#[cfg(target_endian = "big")]
compile_error!("osmill-stree maps its files as they lie on disk, in little-endian order");

/// One cache line: 64 bytes, aligned to 64, seen as eight little-endian words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct Line(pub [u64; 8]);

impl Line {
    /// The line in which every bit is clear.
    pub const ZERO: Line = Line([0; 8]);
}

/// An instruction set for which look-ups are compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Isa {
    /// No SIMD: the oracle of the others, and the fall-back everywhere.
    Scalar,
    /// x86-64 with AVX2, BMI1, BMI2, LZCNT and POPCNT (level v3).
    Avx2,
    /// x86-64 with AVX-512 F, BW, DQ, VL and VPOPCNTDQ on top of the above.
    Avx512,
    /// 64-bit Arm with NEON.
    Neon,
}

impl Isa {
    /// All of them, available here or not.
    pub const ALL: [Isa; 4] = [Isa::Scalar, Isa::Avx2, Isa::Avx512, Isa::Neon];

    /// Whether this processor has it.
    pub fn is_available(self) -> bool {
        if cfg!(miri) {
            return self == Isa::Scalar;
        }
        match self {
            Isa::Scalar => true,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => x86::has_avx2(),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => x86::has_avx512(),
            #[cfg(target_arch = "aarch64")]
            Isa::Neon => std::arch::is_aarch64_feature_detected!("neon"),
            #[allow(unreachable_patterns)]
            _ => false,
        }
    }

    /// Those that this processor has, slowest first.
    pub fn available() -> impl Iterator<Item = Isa> {
        Isa::ALL.into_iter().filter(|isa| isa.is_available())
    }

    /// The fastest that this processor has: what every index uses unless told otherwise.
    pub fn best() -> Isa {
        Isa::available().last().unwrap_or(Isa::Scalar)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Isa::Scalar => "scalar",
            Isa::Avx2 => "avx2",
            Isa::Avx512 => "avx512",
            Isa::Neon => "neon",
        }
    }

    /// Itself if available.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchIsa`] if this processor lacks it.
    pub(crate) fn checked(self) -> Result<Isa> {
        if self.is_available() {
            return Ok(self);
        }
        let available: Vec<_> = Isa::available().map(Isa::name).collect();
        Err(Error::NoSuchIsa {
            isa: self.name(),
            available: available.join(", "),
        })
    }
}

/// Comparisons within one line. All are branch-free and total: any bits in, a bounded number out.
///
/// `SKIP` lanes at the start of the line belong to its header and are not counted.
pub(crate) trait Vector: Copy {
    /// How many of the 32 `u16` lanes from `SKIP` on are `< needle`.
    fn below_u16<const SKIP: u32>(line: &Line, needle: u16) -> usize;
    /// How many of the 16 `u32` lanes from `SKIP` on are `< needle`, both taken XOR `flip`'s sign bit already in `needle`.
    fn below_u32<const SKIP: u32>(lanes: &[u32; 16], needle: u32, flip: u32) -> usize;
    /// How many of the 8 `u64` lanes from `SKIP` on are `< needle` after XOR with `flip`.
    fn below_u64<const SKIP: u32>(lanes: &[u64; 8], needle: u64, flip: u64) -> usize;
    /// Number of set bits below bit `bit` of the 448 bits in words 1 to 7. `bit` must be below 448; more is counted as all.
    fn ones_before(line: &Line, bit: u32) -> usize;
    /// How many of ten 48-bit numbers are `< needle`: their low 32 bits are `u32` lanes 1 to 10, their high 16 bits `u16` lanes
    /// 22 to 31.
    fn below_u48(line: &Line, needle: u64) -> usize;
    /// Which of the three 20-byte records at bytes 4, 24 and 44 of the line equal `needle`, as bits 0, 1, 2.
    fn equal_20(line: &Line, needle: &[u8; 20]) -> u32;
}

/// A batch look-up: a loop to be compiled once per instruction set.
pub(crate) trait Batch {
    /// Runs the loop. Implementations are `#[inline(always)]`, or the features do not reach them.
    fn run<V: Vector>(self);
}

/// Runs `batch` compiled for `isa`. An `isa` that is not available runs the scalar code.
#[inline]
pub(crate) fn dispatch<B: Batch>(isa: Isa, batch: B) {
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 if x86::has_avx512() => {
            // SAFETY: the features were detected on the line above (a cached flag).
            unsafe { x86::run_avx512(batch) }
        }
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 if x86::has_avx2() => {
            // SAFETY: the features were detected on the line above (a cached flag).
            unsafe { x86::run_avx2(batch) }
        }
        #[cfg(target_arch = "aarch64")]
        Isa::Neon => batch.run::<neon::Neon>(),
        _ => batch.run::<scalar::Scalar>(),
    }
}

/// A loop of a caller that is to be compiled once per instruction set, as the look-ups of this crate are; see
/// [`run_wide`].
pub trait Wide {
    /// Runs the loop. Implementations are `#[inline(always)]`, or the features do not reach them.
    fn run(self);
}

/// Runs a caller's loop compiled for the best instruction set that this processor has, population count and bit
/// manipulation included: for the stages of a look-up that come after those of an index.
///
/// ```
/// use osmill_stree::{Wide, run_wide};
///
/// struct Ones<'a>(&'a [u64], &'a mut u32);
/// impl Wide for Ones<'_> {
///     #[inline(always)]
///     fn run(self) {
///         *self.1 = self.0.iter().map(|word| word.count_ones()).sum();
///     }
/// }
/// let mut ones = 0;
/// run_wide(Ones(&[7, 1 << 63], &mut ones));
/// assert_eq!(ones, 4);
/// ```
#[inline]
pub fn run_wide(work: impl Wide) {
    struct Own<W>(W);
    impl<W: Wide> Batch for Own<W> {
        #[inline(always)]
        fn run<V: Vector>(self) {
            self.0.run();
        }
    }
    dispatch(Isa::best(), Own(work));
}

/// How many keys of one line's worth (`window.len() == K::PER_LINE`) are below the key with ordered bits `needle`.
#[inline(always)]
pub(crate) fn below_window<K: Key, V: Vector>(window: &[K], needle: u64) -> usize {
    if size_of::<K>() == 8 {
        V::below_u64::<0>(cast::window_u64(window), needle, K::FLIP)
    } else {
        V::below_u32::<0>(cast::window_u32(window), needle as u32, K::FLIP as u32)
    }
}

/// Asks for the line that holds `*item` to be brought into the nearest cache.
#[inline(always)]
pub(crate) fn prefetch_ref<T>(item: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch is a hint; it neither faults nor changes memory, whatever the address.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(item.cast());
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: as above; the instruction touches no register but its operand.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{0}]", in(reg) item, options(nostack, preserves_flags, readonly));
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    let _ = item;
}

/// Hints that `slice[index]` will be read soon. An index outside the slice is ignored.
///
/// For callers that fuse the fetch of a payload into a batch of look-ups; see `for_each_position` of the indexes.
///
/// ```
/// let payload = vec![7u64; 1000];
/// osmill_stree::prefetch(&payload, 500);
/// osmill_stree::prefetch(&payload, 5000); // nothing happens
/// ```
#[inline(always)]
pub fn prefetch<T>(slice: &[T], index: usize) {
    prefetch_ref(slice.as_ptr().wrapping_add(index.min(slice.len())));
}

#[cfg(test)]
mod tests {
    use super::scalar::Scalar;
    use super::*;
    use proptest::prelude::*;

    /// Runs every operation on one line and collects the answers.
    struct Everything<'a> {
        line: &'a Line,
        needle: u64,
        answers: &'a mut Vec<usize>,
    }

    impl Batch for Everything<'_> {
        #[inline(always)]
        fn run<V: Vector>(self) {
            let (line, needle) = (self.line, self.needle);
            let bytes = cast::bytes(std::slice::from_ref(line));
            let record = |at: usize| std::array::from_fn(|index| bytes[at + index]);
            // A number that is in the line, and one whose high half is.
            let inside = u64::from(cast::u16_lanes(line)[27]) << 32 | u64::from(cast::u32_lanes(line)[6]);
            self.answers.extend([
                V::below_u16::<2>(line, needle as u16),
                V::below_u16::<4>(line, needle as u16),
                V::below_u32::<0>(cast::u32_lanes(line), needle as u32, 0),
                V::below_u32::<1>(cast::u32_lanes(line), needle as u32, 1 << 31),
                V::below_u32::<2>(cast::u32_lanes(line), needle as u32, 0),
                V::below_u64::<0>(&line.0, needle, 0),
                V::below_u64::<0>(&line.0, needle, 1 << 63),
                V::below_u64::<1>(&line.0, needle, 0),
                V::ones_before(line, (needle % 448) as u32),
                V::below_u48(line, needle >> 16),
                V::below_u48(line, inside),
                V::below_u48(line, inside ^ 1 << 31),
                V::equal_20(line, &record(4)) as usize,
                V::equal_20(line, &record(24)) as usize,
                V::equal_20(line, &record(44)) as usize,
                V::equal_20(line, &record(5)) as usize,
            ]);
        }
    }

    fn answers(isa: Isa, line: &Line, needle: u64) -> Vec<usize> {
        let mut answers = Vec::new();
        dispatch(
            isa,
            Everything {
                line,
                needle,
                answers: &mut answers,
            },
        );
        answers
    }

    proptest! {
        #[test]
        fn every_instruction_set_agrees_with_scalar(
            words in proptest::array::uniform8(any::<u64>()),
            needle in any::<u64>(),
            pick in 0usize..8,
            repeat in any::<bool>(),
        ) {
            let mut line = Line(words);
            if repeat {
                // Equal lanes everywhere, so that a strict comparison is told from a loose one.
                line = Line([words[0]; 8]);
            }
            for needle in [needle, words[pick], words[pick] ^ (1 << 63), 0, u64::MAX] {
                let expected = answers(Isa::Scalar, &line, needle);
                for isa in Isa::available() {
                    prop_assert_eq!(answers(isa, &line, needle), expected.clone(), "{:?}", isa);
                }
            }
        }
    }

    #[test]
    fn scalar_counts_what_it_says() {
        let mut line = Line::ZERO;
        line.0[1] = 0b1011;
        line.0[7] = 1 << 63;
        assert_eq!(Scalar::ones_before(&line, 0), 0);
        assert_eq!(Scalar::ones_before(&line, 2), 2);
        assert_eq!(Scalar::ones_before(&line, 447), 3);
        assert_eq!(Scalar::below_u64::<0>(&[1, 2, 3, 4, 5, 6, 7, 8], 5, 0), 4);
        assert_eq!(Scalar::below_u64::<1>(&[1, 2, 3, 4, 5, 6, 7, 8], 5, 0), 3);
        assert_eq!(
            Scalar::below_u64::<0>(&[u64::MAX, 0, 1, 2, 3, 4, 5, 6], 1 << 63, 1 << 63),
            1
        );
    }

    #[test]
    fn an_unavailable_set_is_named() {
        let absent = Isa::ALL.into_iter().find(|isa| !isa.is_available()).unwrap();
        let error = absent.checked().unwrap_err().to_string();
        assert!(
            error.contains(absent.name()) && error.contains("scalar"),
            "{error}"
        );
    }
}

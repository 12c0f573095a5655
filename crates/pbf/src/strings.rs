//! The string table of a block that is being built.

use std::hash::{BuildHasher, RandomState};

use crate::wire::write_bytes_field;

/// Strings numbered in the order of first use; number 0 is the empty string, as dense nodes need it.
#[derive(Debug)]
pub(crate) struct StringTable {
    arena: Vec<u8>,
    spans: Vec<(u32, u32)>,
    /// Open addressing over `spans`. A power of two, a quarter to half full.
    slots: Vec<Slot>,
    seed: u64,
    second_empty: u32,
}

/// A place for a string.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Slot {
    hash: u32,
    /// Number + 1, or 0 where free.
    number: u32,
}

impl StringTable {
    pub fn new() -> Self {
        // Seeded, so that no file can be made to collide.
        let seed = RandomState::new().hash_one(0x5eed);
        let mut table = StringTable {
            arena: Vec::new(),
            spans: Vec::new(),
            slots: vec![Slot::default(); 1024],
            seed,
            second_empty: 0,
        };
        table.clear();
        table
    }

    pub fn clear(&mut self) {
        self.arena.clear();
        self.spans.clear();
        self.slots.fill(Slot::default());
        self.second_empty = 0;
        self.number(b"");
    }

    /// Bytes that the encoded table will have, at most.
    pub fn encoded_len(&self) -> usize {
        self.arena.len() + 6 * self.spans.len()
    }

    /// What tells strings apart at first glance, until the table is dropped.
    pub fn hash(&self, bytes: &[u8]) -> u32 {
        const K: u64 = 0x9e37_79b9_7f4a_7c15;
        let mix = |state: u64, word: u64| {
            let product = u128::from(state ^ word) * u128::from(K ^ self.seed | 1);
            (product as u64) ^ (product >> 64) as u64
        };
        let (words, tail) = bytes.as_chunks::<8>();
        let mut state = self.seed ^ bytes.len() as u64;
        for word in words {
            state = mix(state, u64::from_le_bytes(*word));
        }
        let mut last = [0; 8];
        last[..tail.len()].copy_from_slice(tail);
        let state = mix(mix(state, u64::from_le_bytes(last)), K);
        (state >> 32) as u32
    }

    /// The number of a string, new or not.
    pub fn number(&mut self, bytes: &[u8]) -> u32 {
        self.number_hashed(bytes, self.hash(bytes))
    }

    /// Brings the slots of strings with these hashes near: many at once, where one by one each has to be waited for.
    pub fn fetch(&self, hashes: impl Iterator<Item = u32>) {
        let mask = self.slots.len() - 1;
        let numbers = hashes.map(|hash| self.slots[hash as usize & mask].number);
        std::hint::black_box(numbers.fold(0, |all, number| all | number));
    }

    /// The number of a string, whose hash this is.
    pub fn number_hashed(&mut self, bytes: &[u8], hash: u32) -> u32 {
        let mask = self.slots.len() - 1;
        let mut slot = hash as usize & mask;
        while self.slots[slot].number != 0 {
            if self.slots[slot].hash == hash {
                let number = self.slots[slot].number - 1;
                let (start, len) = self.spans[number as usize];
                if &self.arena[start as usize..(start + len) as usize] == bytes {
                    return number;
                }
            }
            slot = (slot + 1) & mask;
        }
        let number = self.spans.len() as u32;
        self.slots[slot] = Slot {
            hash,
            number: number + 1,
        };
        self.spans.push((self.arena.len() as u32, bytes.len() as u32));
        self.arena.extend_from_slice(bytes);
        if self.spans.len() * 2 > self.slots.len() {
            self.grow();
        }
        number
    }

    /// The number of an entry that is empty and is not number 0.
    pub fn number_of_second_empty(&mut self) -> u32 {
        if self.second_empty == 0 {
            self.second_empty = self.spans.len() as u32;
            // Found in no slot: only this function hands the number out.
            self.spans.push((0, 0));
        }
        self.second_empty
    }

    fn grow(&mut self) {
        let len = self.slots.len() * 2;
        let slots = std::mem::replace(&mut self.slots, vec![Slot::default(); len]);
        for own in slots.into_iter().filter(|own| own.number != 0) {
            let mut slot = own.hash as usize & (len - 1);
            while self.slots[slot].number != 0 {
                slot = (slot + 1) & (len - 1);
            }
            self.slots[slot] = own;
        }
    }

    /// Appends the StringTable message.
    pub fn encode(&self, out: &mut Vec<u8>) {
        for &(start, len) in &self.spans {
            write_bytes_field(out, 1, &self.arena[start as usize..(start + len) as usize]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    proptest! {
        #[test]
        fn numbers_like_a_map(words in proptest::collection::vec("[a-c]{0,12}", 0..3000)) {
            let mut table = StringTable::new();
            let mut model = HashMap::from([(String::new(), 0)]);
            for word in &words {
                let next = model.len() as u32;
                let expected = *model.entry(word.clone()).or_insert(next);
                prop_assert_eq!(table.number(word.as_bytes()), expected);
            }
            table.clear();
            prop_assert_eq!(table.number(b"x"), 1);
        }
    }
}

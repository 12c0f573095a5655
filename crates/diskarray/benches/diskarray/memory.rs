//! Single operations with all extents in the pool, against trees in RAM.

use crate::keys::{Random, absent, present, spread};
use crate::{Args, per_second, rate, resident};
use osmill_diskarray::backend::MemoryBackend;
use osmill_diskarray::{Encoding, Options, OrderedMap};
use std::collections::BTreeSet;
use std::sync::Arc;

/// An AVL tree with subtree counts: 72 bytes a node in an arena of the obvious layout (key, parent, children, count, height, padding), the
/// straw man of the published comparison.
pub struct Avl {
    nodes: Vec<AvlNode>,
    root: usize,
    free: Vec<usize>,
}

#[derive(Clone, Copy)]
struct AvlNode {
    key: u64,
    left: usize,
    right: usize,
    _parent: usize,
    count: u64,
    height: u64,
    _rest: [u64; 3],
}

const NIL: usize = 0;

impl Avl {
    pub fn new() -> Self {
        let nil = AvlNode {
            key: 0,
            left: 0,
            right: 0,
            _parent: 0,
            count: 0,
            height: 0,
            _rest: [0; 3],
        };
        Self {
            nodes: vec![nil],
            root: NIL,
            free: vec![],
        }
    }

    /// A balanced tree of ascending keys.
    pub fn from_sorted(n: u64, key: impl Fn(u64) -> u64) -> Self {
        let mut tree = Self::new();
        tree.nodes.reserve_exact(n as usize + (1 << 20));
        tree.root = tree.build(0, n, &key);
        tree
    }

    fn build(&mut self, from: u64, to: u64, key: &impl Fn(u64) -> u64) -> usize {
        if from == to {
            return NIL;
        }
        let middle = from + (to - from) / 2;
        let left = self.build(from, middle, key);
        let right = self.build(middle + 1, to, key);
        let node = AvlNode {
            key: key(middle),
            left,
            right,
            _parent: 0,
            count: 0,
            height: 0,
            _rest: [0; 3],
        };
        self.nodes.push(node);
        let i = self.nodes.len() - 1;
        self.update(i);
        i
    }

    fn update(&mut self, i: usize) {
        let (l, r) = (self.nodes[self.nodes[i].left], self.nodes[self.nodes[i].right]);
        let node = &mut self.nodes[i];
        node.count = 1 + l.count + r.count;
        node.height = 1 + l.height.max(r.height);
    }

    pub fn contains(&self, key: u64) -> bool {
        let mut i = self.root;
        while i != NIL {
            let node = &self.nodes[i];
            if node.key == key {
                return true;
            }
            i = if key < node.key { node.left } else { node.right };
        }
        false
    }

    pub fn at(&self, mut rank: u64) -> u64 {
        let mut i = self.root;
        loop {
            let node = &self.nodes[i];
            let left = self.nodes[node.left].count;
            match rank.cmp(&left) {
                std::cmp::Ordering::Less => i = node.left,
                std::cmp::Ordering::Equal => return node.key,
                std::cmp::Ordering::Greater => {
                    rank -= left + 1;
                    i = node.right;
                }
            }
        }
    }

    pub fn insert(&mut self, key: u64) {
        self.root = self.insert_at(self.root, key);
    }

    fn insert_at(&mut self, i: usize, key: u64) -> usize {
        if i == NIL {
            let node = AvlNode {
                key,
                left: 0,
                right: 0,
                _parent: 0,
                count: 1,
                height: 1,
                _rest: [0; 3],
            };
            return match self.free.pop() {
                Some(i) => {
                    self.nodes[i] = node;
                    i
                }
                None => {
                    self.nodes.push(node);
                    self.nodes.len() - 1
                }
            };
        }
        let k = self.nodes[i].key;
        if key < k {
            self.nodes[i].left = self.insert_at(self.nodes[i].left, key);
        } else if key > k {
            self.nodes[i].right = self.insert_at(self.nodes[i].right, key);
        } else {
            return i;
        }
        self.balance(i)
    }

    pub fn remove(&mut self, key: u64) {
        self.root = self.remove_at(self.root, key);
    }

    fn remove_at(&mut self, i: usize, key: u64) -> usize {
        if i == NIL {
            return NIL;
        }
        let AvlNode {
            key: k, left, right, ..
        } = self.nodes[i];
        if key < k {
            self.nodes[i].left = self.remove_at(left, key);
        } else if key > k {
            self.nodes[i].right = self.remove_at(right, key);
        } else if left == NIL || right == NIL {
            self.free.push(i);
            return left.max(right);
        } else {
            let mut next = right;
            while self.nodes[next].left != NIL {
                next = self.nodes[next].left;
            }
            let successor = self.nodes[next].key;
            self.nodes[i].key = successor;
            self.nodes[i].right = self.remove_at(right, successor);
        }
        self.balance(i)
    }

    fn balance(&mut self, i: usize) -> usize {
        self.update(i);
        let node = self.nodes[i];
        let height = |t: &Self, i: usize| t.nodes[i].height as i64;
        let lean = height(self, node.left) - height(self, node.right);
        if lean > 1 {
            let l = self.nodes[node.left];
            if height(self, l.left) < height(self, l.right) {
                self.nodes[i].left = self.rotate_left(node.left);
            }
            return self.rotate_right(i);
        }
        if lean < -1 {
            let r = self.nodes[node.right];
            if height(self, r.right) < height(self, r.left) {
                self.nodes[i].right = self.rotate_right(node.right);
            }
            return self.rotate_left(i);
        }
        i
    }

    fn rotate_left(&mut self, i: usize) -> usize {
        let r = self.nodes[i].right;
        self.nodes[i].right = self.nodes[r].left;
        self.nodes[r].left = i;
        self.update(i);
        self.update(r);
        r
    }

    fn rotate_right(&mut self, i: usize) -> usize {
        let l = self.nodes[i].left;
        self.nodes[i].left = self.nodes[l].right;
        self.nodes[l].right = i;
        self.update(i);
        self.update(l);
        l
    }
}

/// A structure under test.
struct Subject<'a> {
    name: &'static str,
    search: Box<dyn FnMut(u64) -> bool + 'a>,
    at: Option<Box<dyn FnMut(u64) -> u64 + 'a>>,
    insert: Option<Box<dyn FnMut(u64) + 'a>>,
    remove: Option<Box<dyn FnMut(u64) + 'a>>,
}

/// Runs one subject; the structure is dropped before the next is built, so that each has the memory for itself.
fn measure(mut s: Subject<'_>, n: u64, ops: u64, bytes: f64) {
    let mut random = Random(41);
    let keys: Vec<u64> = (0..ops).map(|_| present(&mut random, n)).collect();
    let ranks: Vec<u64> = (0..ops).map(|_| random.below(n)).collect();
    let fresh: Vec<u64> = (0..ops).map(|_| absent(&mut random)).collect();
    let search = rate(ops, || assert!(keys.iter().all(|&k| (s.search)(k))));
    let at =
        s.at.as_mut()
            .map(|at| rate(ops, || assert!(ranks.iter().all(|&i| at(i) == spread(i, n)))));
    let insert = s
        .insert
        .as_mut()
        .map(|insert| rate(ops, || fresh.iter().for_each(|&k| insert(k))));
    if insert.is_some() {
        assert!(fresh.iter().step_by(97).all(|&k| (s.search)(k)), "{}", s.name);
    }
    let remove = s
        .remove
        .as_mut()
        .map(|remove| rate(ops, || fresh.iter().for_each(|&k| remove(k))));
    if remove.is_some() {
        assert!(!fresh.iter().step_by(97).any(|&k| (s.search)(k)), "{}", s.name);
    }
    let show = |r: Option<f64>| r.map_or("-".into(), per_second);
    println!(
        "{:<22} search {:>10}  at {:>10}  insert {:>10}  delete {:>10}  {:>6.1} bytes a key",
        s.name,
        per_second(search),
        show(at),
        show(insert),
        show(remove),
        bytes / n as f64
    );
}

pub fn pool(args: &Args) {
    let n = args.n.unwrap_or(16_000_000);
    let ops = 1_000_000.min(n);
    println!(
        "{n} keys, {ops} single operations of each kind, one thread, no durability; the store's extents are all in its pool"
    );
    // Trees first, while the heap is fresh and their growth can be seen.
    rest(n, ops);
    for encoding in [Encoding::Raw, Encoding::Packed] {
        let options = Options::default()
            .memory(args.memory.unwrap_or((n * 14).max(64 << 20)))
            .encoding(encoding);
        let mut map = OrderedMap::<()>::create_on(Arc::new(MemoryBackend::new()), "memory", options).unwrap();
        map.bulk_load((0..n).map(|i| (spread(i, n), ()))).unwrap();
        map.commit(osmill_diskarray::Durability::None, &[]).unwrap();
        // Brings every extent into the pool.
        for i in (0..n).step_by(64) {
            map.contains(spread(i, n)).unwrap();
        }
        let stats = map.stats().unwrap();
        let bytes = (stats.pool_memory + stats.directory_memory) as f64;
        let map = std::cell::RefCell::new(map);
        let name = if encoding == Encoding::Raw {
            "diskarray raw"
        } else {
            "diskarray packed"
        };
        let subject = Subject {
            name,
            search: Box::new(|k| map.borrow().contains(k).unwrap()),
            at: Some(Box::new(|i| map.borrow().at(i).unwrap().unwrap().0)),
            insert: Some(Box::new(|k| {
                map.borrow_mut().insert(k, ()).unwrap();
            })),
            remove: Some(Box::new(|k| {
                map.borrow_mut().remove(k).unwrap();
            })),
        };
        measure(subject, n, ops, bytes);
        let map = map.into_inner();
        let mut random = Random(4);
        let keys: Vec<u64> = (0..ops).map(|_| present(&mut random, n)).collect();
        let r = rate(ops, || {
            assert!(
                keys.chunks(1024)
                    .all(|c| map.get_many(c).unwrap().iter().all(Option::is_some))
            );
        });
        println!("{name:<22} search in groups of 1024 {}", per_second(r));
    }
    println!("peak resident {:.0} MiB", resident().0);
}

fn rest(n: u64, ops: u64) {
    let before = std::cell::Cell::new(resident().1);
    let grown = || (resident().1 - before.get()).max(0.0) * (1 << 20) as f64;
    {
        let tree = std::cell::RefCell::new(Avl::from_sorted(n, |i| spread(i, n)));
        let bytes = grown();
        let subject = Subject {
            name: "AVL, 72 bytes a node",
            search: Box::new(|k| tree.borrow().contains(k)),
            at: Some(Box::new(|i| tree.borrow().at(i))),
            insert: Some(Box::new(|k| tree.borrow_mut().insert(k))),
            remove: Some(Box::new(|k| tree.borrow_mut().remove(k))),
        };
        measure(subject, n, ops, bytes);
    }
    before.set(resident().1);
    {
        let set: std::cell::RefCell<BTreeSet<u64>> =
            std::cell::RefCell::new((0..n).map(|i| spread(i, n)).collect());
        let bytes = grown();
        let subject = Subject {
            name: "BTreeSet",
            search: Box::new(|k| set.borrow().contains(&k)),
            at: None,
            insert: Some(Box::new(|k| {
                set.borrow_mut().insert(k);
            })),
            remove: Some(Box::new(|k| {
                set.borrow_mut().remove(&k);
            })),
        };
        measure(subject, n, ops, bytes);
    }
    #[cfg(feature = "rivals")]
    {
        before.set(resident().1);
        let mut set = indexset::BTreeSet::new();
        (0..n).for_each(|i| {
            set.insert(spread(i, n));
        });
        let set = std::cell::RefCell::new(set);
        let bytes = grown();
        let subject = Subject {
            name: "indexset",
            search: Box::new(|k| set.borrow().contains(&k)),
            at: Some(Box::new(|i| *set.borrow().get_index(i as usize).unwrap())),
            insert: Some(Box::new(|k| {
                set.borrow_mut().insert(k);
            })),
            remove: Some(Box::new(|k| {
                set.borrow_mut().remove(&k);
            })),
        };
        measure(subject, n, ops, bytes);
    }
    before.set(resident().1);
    {
        let keys: Vec<u64> = (0..n).map(|i| spread(i, n)).collect();
        let bytes = grown();
        let subject = Subject {
            name: "sorted array",
            search: Box::new(|k| keys.binary_search(&k).is_ok()),
            at: Some(Box::new(|i| keys[i as usize])),
            insert: None,
            remove: None,
        };
        measure(subject, n, ops, bytes);
    }
}

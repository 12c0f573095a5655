//! The straw man of the published comparison.

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
    pub fn from_sorted(keys: &[u64]) -> Self {
        let mut tree = Self::new();
        tree.nodes.reserve_exact(keys.len() + (1 << 20));
        tree.root = tree.build(keys);
        tree
    }

    fn build(&mut self, keys: &[u64]) -> usize {
        if keys.is_empty() {
            return NIL;
        }
        let middle = keys.len() / 2;
        let left = self.build(&keys[..middle]);
        let right = self.build(&keys[middle + 1..]);
        let node = AvlNode {
            key: keys[middle],
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

    /// Bytes of the nodes in use.
    pub fn memory(&self) -> u64 {
        ((self.nodes.len() - self.free.len()) * size_of::<AvlNode>()) as u64
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

//! A table of scores that is asked for ranks.

use osmill_diskarray::{Batch, Durability, Options, OrderedMap};

fn main() -> osmill_diskarray::Result<()> {
    let path = std::env::temp_dir().join("scores");
    let mut scores = OrderedMap::<u64>::open_or_create(path, Options::default().memory(64 << 20))?;
    let mut batch = Batch::new();
    (0..100_000).for_each(|player| batch.put(player * 7, player % 1000));
    scores.apply(&mut batch)?;
    scores.commit(Durability::Batch, b"round 1")?;

    println!("{:?}", scores.get(700)?); // Some(100)
    println!("{:?}", scores.at(50_000)?); // the key with 50,000 keys before it
    println!("{}", scores.rank(350_000)?); // 50000
    println!("{}", scores.count(0..7_000)?); // 1000
    println!("{}", scores.stats()?);
    Ok(())
}

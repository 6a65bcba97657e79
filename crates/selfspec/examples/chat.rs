//! Chats with the default model: streams the reply, then prints how many drafts were accepted.

use std::io::Write;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let model = selfspec::Model::open(selfspec::DEFAULT_MODEL_NAME)?;
    let mut chat = model.chat();
    for token in chat.send("Why is the sky blue?")? {
        print!("{}", token?.text);
        std::io::stdout().flush()?;
    }
    let acceptance = chat.acceptance().ok_or("nothing was drafted")?;
    println!("\n{:.0}% of the drafts accepted", 100.0 * acceptance);
    Ok(())
}

//! Chats with the default model: streams the reply, then prints how many drafts were accepted.

use std::io::Write;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut out = std::io::stdout();
    let model = selfspec::Model::open(selfspec::DEFAULT_MODEL_NAME)?;
    let mut chat = model.chat();
    for token in chat.send("Why is the sky blue?")? {
        write!(out, "{}", token?.text)?;
        out.flush()?;
    }
    let acceptance = chat.acceptance().ok_or("nothing was drafted")?;
    Ok(writeln!(out, "\n{:.0}% of the drafts accepted", 100.0 * acceptance)?)
}

// The only script that the page carries in plain text: it unpacks the others (gzip in base64) and starts them.
// Their sources, for reading, are the files of rostok/attention/page/ in Rostok's repository.
try {
  for (const packed of document.querySelectorAll("[data-gzip]")) {
    const bytes = Uint8Array.from(atob(packed.textContent), (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    const open = document.createElement("script");
    open.type = packed.dataset.gzip;
    open.id = packed.dataset.name;
    open.textContent = await new Response(stream).text();
    packed.replaceWith(open);
  }
} catch (error) {
  document.getElementById("old").hidden = false;
  console.error(error);
}

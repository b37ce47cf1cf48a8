/* Browsers start no worker for a page that was opened from a file. There the search runs in a frame instead. */
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.append(frame)
      const inside = frame.contentWindow
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }))
      this.ready = new Promise((resolve) => {
        const script = frame.contentDocument.createElement("script")
        script.src = url
        script.addEventListener("load", resolve)
        frame.contentDocument.head.append(script)
      })
      this.send = (data) => inside.dispatchEvent(new MessageEvent("message", { data }))
    }

    postMessage(data) {
      this.ready.then(() => this.send(data))
    }
  }
}

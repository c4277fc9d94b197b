// The search of the theme runs in a Worker, which browsers do not start for a page of the file
// system. There, this class runs the same script in a hidden frame, which has its own globals.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.inner = frame.contentWindow;
      this.inner.postMessage = (data) =>
        this.dispatchEvent(new MessageEvent("message", { data }));
      this.inner.importScripts = (...urls) => Promise.all(urls.map((each) => this.load(each)));
      this.loaded = this.load(url);
    }

    // Runs a script in the frame; the result is fulfilled when it has run.
    load(url) {
      const script = this.inner.document.createElement("script");
      script.src = url;
      return new Promise((resolve, reject) => {
        script.onload = resolve;
        script.onerror = reject;
        this.inner.document.body.append(script);
      });
    }

    postMessage(data) {
      this.loaded.then(() =>
        this.inner.dispatchEvent(new this.inner.MessageEvent("message", { data })));
    }

    terminate() {
      this.inner.frameElement.remove();
    }
  };
}

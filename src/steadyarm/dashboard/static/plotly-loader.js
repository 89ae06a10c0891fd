// Loads Plotly when the first chart is drawn: once for all charts, anew after a failure.
"use strict";
(() => {
  const address = document.currentScript.dataset.plotly;
  let library = null;

  window.loadPlotly = () => {
    library ??= new Promise((done, failed) => {
      const script = document.createElement("script");
      script.src = address;
      script.addEventListener("load", () => done(window.Plotly));
      script.addEventListener("error", () => {
        library = null;
        script.remove();
        failed(new Error("Plotly could not be loaded"));
      });
      document.head.append(script);
    });
    return library;
  };
})();

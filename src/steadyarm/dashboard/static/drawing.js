// Draws charts: loads Vega when the first one is drawn, once for all charts, anew after a failure.
"use strict";
(() => {
  const address = document.currentScript.dataset.vega;
  const drawn = new WeakMap();
  let library = null;

  function load() {
    library ??= new Promise((done, failed) => {
      const script = document.createElement("script");
      script.src = address;
      script.addEventListener("load", () => done(window.vegaEmbed));
      script.addEventListener("error", () => {
        library = null;
        script.remove();
        failed(new Error("Vega could not be loaded"));
      });
      document.head.append(script);
    });
    return library;
  }

  // The expression interpreter (`ast`) needs no eval, which the page's policy forbids.
  window.drawChart = async (place, spec, dark) => {
    const embed = await load();
    place.style.minHeight = `${place.offsetHeight}px`; // so that nothing jumps meanwhile
    window.removeChart(place);
    const tooltip = {theme: dark ? "dark" : "light"};
    const options = {ast: true, actions: false, renderer: "svg", defaultStyle: false, tooltip,
      logLevel: 1}; // errors
    drawn.set(place, await embed(place, spec, options));
    place.setAttribute("role", "img"); // Vega makes it a document of marks without names
    place.removeAttribute("aria-roledescription");
    place.style.minHeight = "";
  };

  window.removeChart = (place) => {
    drawn.get(place)?.finalize();
    drawn.delete(place);
  };
})();

const PLOTLY = "/app/static/plotly.min.js";
let plotly;

// Streamlit keeps its own Plotly to itself; the same script is fetched from the app when it is needed first.
function loadPlotly() {
  plotly ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = PLOTLY;
    script.onload = () => resolve(globalThis.Plotly);
    script.onerror = () => {
      plotly = undefined;
      reject(new Error(`${PLOTLY} did not load`));
    };
    document.head.append(script);
  });
  return plotly;
}

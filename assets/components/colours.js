// Weights as colours, and arrays that come as base64.

const bytesOf = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
const floatsOf = (text) => new Float32Array(bytesOf(text).buffer);

const rgb = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));

// 256 colours [r, g, b] between the given ones.
function ramp(colours) {
  const stops = colours.map(rgb);
  return Array.from({ length: 256 }, (_, level) => {
    const at = (level / 255) * (stops.length - 1);
    const low = Math.min(Math.floor(at), stops.length - 2);
    return stops[low].map((value, i) => Math.round(value + (stops[low + 1][i] - value) * (at - low)));
  });
}

// An image of n rows and m columns; `level(i)` is 0 to 255, or undefined for what the mask hides, which stays clear.
function paint(canvas, n, m, colours, level) {
  canvas.width = m;
  canvas.height = n;
  const image = new ImageData(m, n);
  for (let i = 0; i < n * m; i += 1) {
    const shade = level(i);
    if (shade === undefined) continue;
    const [r, g, b] = colours[shade];
    image.data.set([r, g, b, 255], 4 * i);
  }
  canvas.getContext("2d").putImageData(image, 0, 0);
}
